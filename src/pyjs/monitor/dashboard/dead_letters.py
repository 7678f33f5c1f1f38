"""The dead letters in a stream: which streams and consumers send them, and whether the page may replay them.

The replay itself is an action (replay.py). It requires `replay: true` in the login of the monitoring port, because
not everyone who may see the state of a server may change streams.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from pyjs.base.errors import NotNow
from pyjs.jetstream.config.dead_letters import STREAM_KEY
from pyjs.jetstream.consumer.consumer import Consumer
from pyjs.jetstream.dead_letters.letter import read_letter
from pyjs.monitor.dashboard.lists import STEP

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from pyjs.jetstream.manage.engine import JetStream
    from pyjs.jetstream.stream.stream import Stream
    from pyjs.monitor.arguments import Arguments
    from pyjs.monitor.dashboard.site import Fields, Site, Steps

SENDERS_MAX = 20  # streams and consumers in an answer


def is_replay_allowed(site: Site) -> bool:
    """Return whether the page may replay dead letters; that requires a login for the monitoring port."""
    login = site.monitored.options.monitoring.login
    return login is not None and login.replay


def leader_elsewhere(js: JetStream, stream: Stream) -> str | None:
    """Return the name of another server that leads a stream, "" if no server does, or None if this server does."""
    member = js.shared.member
    if member is None:
        return None
    leader, _ = member.reports.led_by(js, stream)
    return None if leader == js.shared.server_name else leader


def dead_letters(site: Site, arguments: Arguments) -> Steps:
    """Return the streams and consumers of this server whose dead letters go to a stream; yield between steps.

    `letters` in the answer says whether the first or the last message of the stream is a letter.

    Raises:
        BadArgument: the stream is not open on this server.
    """
    js, stream = site.stream_in(arguments)
    senders, total = yield from _senders(js, stream.name)
    has_letters = yield from _has_letters(stream)
    elsewhere = leader_elsewhere(js, stream)
    return {
        "senders": senders,
        "num_senders": total,
        "letters": has_letters,
        "replay": is_replay_allowed(site),
        "is_leader": elsewhere is None,
        "leader": elsewhere or "",
    }


def _senders(js: JetStream, name: str) -> Generator[None, None, tuple[list[Fields], int]]:
    """Return the first senders of letters to the stream `name`, and the number of all these senders."""
    found: list[Fields] = []
    total = 0
    assets = _assets(js)
    while some := list(islice(assets, STEP)):
        here = [fields for fields, target in some if target == name]
        found += here[: SENDERS_MAX - len(found)]
        total += len(here)
        yield
    return found, total


def _assets(js: JetStream) -> Iterator[tuple[Fields, str]]:
    """Yield the names of each stream and of each consumer, together with the name of a dead letter stream.

    This is the dead letter stream in the metadata of the stream or consumer itself, or "" if there is none.
    """
    for stream in list(js.streams.values()):
        yield {"stream": stream.name}, stream.config.metadata.get(STREAM_KEY, "")
        for consumer in list(stream.consumers.values()):
            if isinstance(consumer, Consumer):
                target = consumer.config.metadata.get(STREAM_KEY, "")
                yield {"stream": stream.name, "consumer": consumer.name}, target


def _has_letters(stream: Stream) -> Generator[None, None, bool]:
    """Return whether the first or the last message of a stream is a letter; yield between the two reads."""
    store = stream.store
    for seq in (store.first_seq, store.last_seq):
        if stream.closed or not store.msgs:
            return False
        try:
            message = store.get(seq)
        except NotNow:
            return False
        if message is not None and read_letter(message.headers) is not None:
            return True
        yield
    return False
