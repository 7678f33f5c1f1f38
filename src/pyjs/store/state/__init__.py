"""The consumers of a stream in files: their list, and the state of each."""
