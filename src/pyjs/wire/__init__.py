"""Bytes to operations and back: the client protocol, frames, PROXY headers and keys, without sockets."""
