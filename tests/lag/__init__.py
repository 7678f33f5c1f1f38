"""Loop lag: the server on an event loop that times each callback, under a workload that mixes everything."""
