"""`pyjs-server doctor` checks whether this machine can run a server with a configuration, and suggests remedies."""
