"""Readers of the files in a server's store directory; the option `path` selects them, and no server is needed.

Nothing here writes, locks or renames. Source of all layouts: docs/storage-format.md.
"""
