"""Operator mode: accounts and users from tokens that trusted operators and their accounts have signed."""
