"""The removal of messages that exceed the lowered limits of an updated stream, in steps of about a millisecond.

A stream on one server runs the steps before it applies the new configuration (manage/purging.py), and every replica
of a replicated stream runs them while it applies the entry of the update (replicated/operations.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyjs.store.trimming import STEP, trim_steps

if TYPE_CHECKING:
    from collections.abc import Generator

    from pyjs.jetstream.config.stream import StreamConfig
    from pyjs.jetstream.stream.stream import Stream


def lower_steps(stream: Stream, config: StreamConfig) -> Generator[None, None, None]:
    """If the stream has many messages, remove those that exceed limits of `config`, in steps.

    The caller writes the removals after each step, and then applies `config`, which removes the rest.
    """
    if stream.store.msgs <= STEP:
        return
    before, keep = stream.config.max_msgs_per_subject, config.max_msgs_per_subject
    is_front_removed = config.discard != "new"
    yield from trim_steps(
        stream.store,
        keep if before <= 0 or keep < before else 0,
        config.max_msgs if is_front_removed else 0,
        config.max_bytes if is_front_removed else 0,
    )
