"""What answers API requests and serves streams, loaded module by module once the server is ready.

A start without streams needs none of it, and the first request would wait for all of it: a tenth of a second.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

# ruff: noqa: F401  they are imported to be loaded


def load_steps() -> Iterator[None]:
    """Load the router and everything below it, from the ground up; a step takes a few milliseconds."""
    from pyjs.store import filestore

    yield
    from pyjs.store import consumer_state

    yield
    from pyjs.jetstream import models

    yield
    from pyjs.jetstream import stream_rules

    yield
    from pyjs.jetstream import consumer_rules

    yield
    from pyjs.jetstream import stream

    yield
    from pyjs.jetstream import consumer_files, stream_changes

    yield
    from pyjs.jetstream import stored_purge

    yield
    from pyjs.jetstream import persist

    yield
    from pyjs.jetstream import consumer

    yield
    from pyjs.jetstream import consumers

    yield
    from pyjs.jetstream import purging, replay

    yield
    from pyjs.jetstream import streams

    yield
    from pyjs.jetstream.api import endpoint, messages

    yield
    from pyjs.jetstream.api import streams as stream_requests

    yield
    from pyjs.jetstream.api import consumers as consumer_requests

    yield
    from pyjs.jetstream.api import bulk, direct

    yield
    from pyjs.jetstream.api import router
