"""Requests about the server through the system account: `$SYS.REQ.…`."""
