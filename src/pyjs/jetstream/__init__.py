"""The JetStream engine: streams and consumers."""
