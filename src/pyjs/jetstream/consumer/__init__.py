"""Consumers, and the parts that each of them consists of."""
