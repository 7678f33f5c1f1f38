"""One segment file: reading, checks, index file, compaction, removal."""
