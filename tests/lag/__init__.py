"""Loop lag: the server runs on an event loop that measures each callback, while clients do work of every kind."""
