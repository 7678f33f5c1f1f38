"""Plans of ranges of sequences, and reads of their messages."""
