"""Streams, consumers and buckets that a configuration file declares: they are read, compared and applied here."""
