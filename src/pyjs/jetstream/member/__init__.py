"""The part of one server in a JetStream cluster: the metadata, and the streams and answers that follow from it."""
