"""The replicated streams of a node; they connect the node's consensus with its stores and its clients."""
