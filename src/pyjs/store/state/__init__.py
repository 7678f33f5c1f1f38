"""The consumers of a stream in files: a list of the consumers, and the state of each."""
