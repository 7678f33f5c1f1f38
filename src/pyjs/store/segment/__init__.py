"""One segment file: read, checked, indexed, compacted, removed."""
