"""Clients that connect through a proxy: the PROXY header at the start of the connection."""
