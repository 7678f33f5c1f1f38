"""Encryption of stored files: keys and ciphers."""
