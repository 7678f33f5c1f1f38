"""Publishes with special headers: counters, batches, schedules, TTLs."""
