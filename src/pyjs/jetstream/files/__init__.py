"""What is written of streams and consumers beside their messages."""
