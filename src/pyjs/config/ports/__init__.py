"""Blocks of ports beside the one for clients."""
