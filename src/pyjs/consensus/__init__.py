"""Replication of groups between the nodes of a cluster."""
