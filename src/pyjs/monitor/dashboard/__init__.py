"""The data of the dashboard: compact JSON about this server, one document for each view."""
