"""Streams and consumers of an account coming, changing and going."""
