"""The configuration of accounts, users, permissions and operators."""
