"""JetStream of a server in a cluster: its part in the metadata group, and in the groups of replicated streams."""
