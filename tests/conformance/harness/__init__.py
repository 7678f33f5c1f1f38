"""The conformance harness: scripts, a raw-socket player, recordings, masks and their comparison.

Must never import the server: it sees a process and its sockets only.
Order of reading: script, frames, process, player, masks, compare. See ../README.md for the language.
"""
