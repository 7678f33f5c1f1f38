"""The check of a store directory: damage, its effect on the next start, and repairs that lose nothing more."""
