"""Archives of streams, and what is made of streams and archives."""
