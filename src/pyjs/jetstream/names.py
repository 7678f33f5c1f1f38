"""Names of streams and consumers."""

NAME_FORBIDDEN = frozenset(" \t\r\n\f.*>\\/")


def is_valid_name(name: str) -> bool:
    """Return whether a stream or consumer may be called so (length aside)."""
    return bool(name) and not NAME_FORBIDDEN.intersection(name)
