"""Snapshots and restores: archives of streams, and streams built from archives."""
