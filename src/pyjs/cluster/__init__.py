"""Servers that act as one: routes between them, interest and messages over the routes."""
