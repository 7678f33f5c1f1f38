"""Monitoring views and their router; HTTP is in server/monitoring."""
