"""Imports of streams and services between accounts, applied while the server runs."""
