"""Snapshots and restores of streams: archives made of a stream, and streams built from archives."""
