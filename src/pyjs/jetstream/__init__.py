"""The JetStream engine: streams, consumers, their API and their replication."""
