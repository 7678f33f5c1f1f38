"""Other clients' own test suites, run against this server and against nats-server, side by side.

The suites start a program called `nats-server` from PATH; here that is a shim which becomes the server under
test. Checkouts are given on the command line and never belong to this tree. Order of reading: shim,
natspy, natsc, results, __main__.
"""
