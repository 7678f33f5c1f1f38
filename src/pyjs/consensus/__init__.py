"""Consensus of the replicated groups of this node: one engine, one log and one turn for all of them."""
