"""Streams that copy other streams."""
