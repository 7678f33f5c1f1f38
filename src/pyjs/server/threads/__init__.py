"""Threads beside the loop, and what they sync and compute."""
