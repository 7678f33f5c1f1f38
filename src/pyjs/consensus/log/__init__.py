"""The node log: what consensus must not forget, of all groups of a node, in one sequence of files."""
