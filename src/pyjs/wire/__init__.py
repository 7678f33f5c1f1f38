"""Parsers and encoders of the client protocol, frames, PROXY headers and keys. They use no sockets."""
