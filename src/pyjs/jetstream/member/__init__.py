"""The part of one server in a JetStream cluster: its copy of the metadata, its streams, and its answers."""
