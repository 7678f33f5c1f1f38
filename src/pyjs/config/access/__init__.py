"""Accounts, users and permissions, in the configuration file and by operators."""
