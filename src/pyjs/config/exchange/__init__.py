"""Exports, imports and mappings of accounts: declarations, readers of the configuration file, rules."""
