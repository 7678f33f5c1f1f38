"""Who connects, and what they may do."""
