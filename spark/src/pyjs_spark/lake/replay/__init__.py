"""From an archive back into a stream."""
