"""Pending deliveries, and acks."""
