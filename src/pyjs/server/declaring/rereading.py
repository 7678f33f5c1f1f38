"""The configuration file with its declared assets, read again for a reload."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pyjs.server.declaring.part import read_declared
from pyjs.server.reload import read_again

if TYPE_CHECKING:
    from pyjs.config.load import Change
    from pyjs.config.options import Options
    from pyjs.declared.assets import AccountAssets


class Reread(NamedTuple):
    """A configuration file that was read again and is valid."""

    options: Options
    changed: list[Change]
    declared: tuple[AccountAssets, ...]


def read_with_declared(old: Options) -> Reread:
    """Reread the configuration file of `old`, with its declared assets; may be called in a thread.

    The new options keep only the part of the declared blocks that a later reload compares.

    Raises:
        ReloadRefused: as in `read_again`.
        ConfigError: the configuration or a declared asset is invalid.
    """
    new, changed = read_again(old)
    declared = read_declared(new)
    new.compact_declared()
    return Reread(new, changed, declared)


def given(found: Reread | Exception) -> Reread:
    """Return `found`, or raise it if it is an exception."""
    if isinstance(found, Exception):
        raise found
    return found
