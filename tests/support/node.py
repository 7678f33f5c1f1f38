"""Options with a store, and the fields of INFO that differ between nodes."""

from __future__ import annotations

import re
from pathlib import Path

from pyjs.config.options import Options


def options_with_store(directory: Path) -> Options:
    """Return options with JetStream enabled, whose store is below `directory`."""
    options = Options()
    options.jetstream.enabled = True
    options.jetstream.store_dir = str(directory)
    return options


def mask_ids(data: bytes) -> bytes:
    """Replace server and x keys in an INFO line."""
    return re.sub(rb'"[NX][A-Z2-7]{55}"', b'"KEY"', data)
