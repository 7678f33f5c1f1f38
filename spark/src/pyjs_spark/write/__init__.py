"""Rows into a stream, each once."""
