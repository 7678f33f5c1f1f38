"""Consensus of the replicated groups of this node: one engine, one log, one turn for all of them."""
