"""A consumer and its parts."""
