"""Stored files of streams and consumers other than messages."""
