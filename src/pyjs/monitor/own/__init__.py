"""Pages of the monitoring port that nats-server does not have."""
