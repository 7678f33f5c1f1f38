"""Servers that act as one: routes between them, with interest and messages."""
