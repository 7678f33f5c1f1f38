"""Why a consumer delivers nothing, or a stream refuses publishes: views that leave the state unchanged."""
