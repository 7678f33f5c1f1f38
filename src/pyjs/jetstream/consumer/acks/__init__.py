"""Deliveries that wait for an acknowledgement, and the acks."""
