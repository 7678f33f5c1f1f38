"""Replicated streams of a node: they connect its consensus with its stores and its clients."""
