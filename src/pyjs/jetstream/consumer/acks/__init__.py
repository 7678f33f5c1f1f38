"""Deliveries that wait for an ack, and acks that come."""
