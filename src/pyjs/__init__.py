"""A NATS server with JetStream persistence; README.md explains its structure and the order in which to read it."""

__version__ = "0.1.0"
