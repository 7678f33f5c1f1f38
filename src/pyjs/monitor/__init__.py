"""Monitoring views and their HTTP router."""
