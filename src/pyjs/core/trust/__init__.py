"""Operator mode: accounts and users that come from tokens, which trusted operators and their accounts signed."""
