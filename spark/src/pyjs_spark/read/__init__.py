"""Plans that divide a read into ranges of sequences, and reads of these ranges."""
