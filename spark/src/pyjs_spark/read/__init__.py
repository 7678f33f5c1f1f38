"""Ranges of sequences: how they are planned, and how their messages are read."""
