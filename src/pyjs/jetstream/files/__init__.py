"""Stored files of streams and consumers, except those of messages."""
