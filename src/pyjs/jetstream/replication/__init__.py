"""Replicated streams of a node: between its consensus, its stores and its clients."""
