"""The reasons why a consumer delivers nothing, or why a stream refuses publishes; no state is changed."""
