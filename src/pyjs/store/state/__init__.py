"""The consumers of a stream in files: a list of them, and the state of each."""
