"""Encryption at rest: keys and ciphers."""
