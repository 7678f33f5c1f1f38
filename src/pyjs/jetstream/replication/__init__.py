"""The replicated streams of a node: connects the node's consensus with its stores and its clients."""
