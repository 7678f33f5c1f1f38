"""Streams, consumers and buckets that a configuration file declares: reading, comparison, application."""
