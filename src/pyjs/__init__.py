"""A NATS server with JetStream persistence; see README.md for the house and the order to read it in."""

__version__ = "0.1.0"
