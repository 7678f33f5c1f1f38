"""Test suites of other clients, run against this server and against nats-server, with a table of both results.

The suites start a program called `nats-server` from PATH; here that is a shim which executes the server under test.
Checkouts of the suites are given on the command line and are not part of this tree. Reading order: shim, natspy,
natsc, results, __main__.
"""
