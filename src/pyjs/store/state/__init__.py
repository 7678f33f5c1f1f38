"""The consumers of a stream on disk: their list, and the state of each."""
