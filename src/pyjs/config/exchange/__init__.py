"""Exports, imports and mappings of accounts: their declarations, the reading of a file, the rules."""
