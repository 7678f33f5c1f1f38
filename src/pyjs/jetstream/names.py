"""Names of streams and consumers."""

NAME_FORBIDDEN = frozenset(" \t\r\n\f.*>\\/")


def is_valid_name(name: str) -> bool:
    """Return whether a stream or consumer may have this name; its length is not checked."""
    return bool(name) and not NAME_FORBIDDEN.intersection(name)
