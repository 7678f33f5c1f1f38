"""A stream and its parts."""
