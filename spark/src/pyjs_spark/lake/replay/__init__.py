"""Replays of an archive into a stream."""
