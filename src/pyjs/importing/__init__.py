"""The import of streams from the store directory of a stopped nats-server into a store directory of this server."""
