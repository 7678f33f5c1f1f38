"""Finds out why a consumer delivers nothing, or why a stream refuses publishes, without changing their state."""
