"""Files of a server's store directory, read without the server: for `option("path", ...)`.

Nothing here writes, locks or renames. Source of all layouts: docs/storage-format.md.
"""
