"""Traces of single messages, on request of their publisher."""
