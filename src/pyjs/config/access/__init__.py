"""Accounts, users and permissions, in the configuration file and from operators."""
