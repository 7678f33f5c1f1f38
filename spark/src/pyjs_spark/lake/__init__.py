"""Archives of streams, and jobs that use streams and archives."""
