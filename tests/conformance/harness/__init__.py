"""The conformance harness: scripts, a raw-socket player, recordings, masks and their comparison.

It must never import the server: it uses only the server's process and sockets. Order of reading: script, frames,
process, player, masks, compare. ../README.md describes the language.
"""
