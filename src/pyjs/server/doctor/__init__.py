"""`pyjs-server doctor`: whether this machine can run a server with a configuration, and what to do if not."""
