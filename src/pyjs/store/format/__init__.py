"""The bytes of files: log records, compressed and encrypted segments, metadata, names."""
