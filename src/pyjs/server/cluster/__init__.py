"""Routes on the event loop: the port for other servers, and connections to their ports."""
