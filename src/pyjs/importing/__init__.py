"""Streams from the store directory of a stopped nats-server, written into a store directory of this server."""
