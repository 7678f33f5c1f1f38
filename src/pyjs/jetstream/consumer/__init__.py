"""Consumers and their parts."""
