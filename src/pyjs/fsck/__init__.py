"""The check of a store directory: what is damaged, what the server will make of it, and repairs that lose nothing."""
