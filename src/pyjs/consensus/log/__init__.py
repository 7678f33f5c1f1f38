"""The node log: the durable state of consensus for all groups of a node, in one sequence of files."""
