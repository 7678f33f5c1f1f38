"""Observers of running streaming queries: metrics for Prometheus, log lines, a progress bar."""
