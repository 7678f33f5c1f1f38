"""Routes on the event loop: the port that other servers connect to, and connections to their ports."""
