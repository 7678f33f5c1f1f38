"""A NATS server with JetStream persistence; see README.md for its structure and the order to read it in."""

__version__ = "0.1.0"
