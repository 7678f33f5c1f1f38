"""Bytes to operations and back: the NATS client protocol, without sockets or subscriptions."""
