"""The monitoring port."""
