"""The store of file streams, made of parts."""
