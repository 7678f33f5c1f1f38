"""Streaming queries, seen while they run: metrics for Prometheus, log lines, a progress bar."""
