"""The check of a store directory: damage, its effect on the next start, and repairs without further loss."""
