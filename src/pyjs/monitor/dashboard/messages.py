"""The message browser: pages of the stored messages of a stream, and single messages.

It reads the store as a direct get does: no consumer is created, and nothing counts as delivered. Every request is
bounded. It reads at most SCAN_MAX messages or SCAN_SIZE bytes, in steps; the answer then says where the next request
continues. A payload is returned in pieces.

The views answer only if the login of the monitoring port has `messages: true`, because not everyone
who may see the state of a server may read payloads.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, NamedTuple

from pyjs.base.errors import NotNow
from pyjs.base.gotext import quoted, time_text
from pyjs.jetstream.manage.stream_info import know_subjects
from pyjs.monitor.arguments import BadArgument
from pyjs.monitor.own.consumer_reading import SEARCHED
from pyjs.store import searches
from pyjs.subjects.tokens import is_valid_subject, subject_has_wildcard

if TYPE_CHECKING:
    from collections.abc import Generator

    from pyjs.monitor.arguments import Arguments
    from pyjs.monitor.dashboard.site import Fields, Site, Steps
    from pyjs.store.index.filter import StoreFilter
    from pyjs.store.store import StoredMessage, StreamStore

LIMIT = 50  # messages of a page, unless requested otherwise
LIMIT_MAX = 200
STEP_COUNT = 64  # messages read between two yields, at most: about half a millisecond
STEP_SIZE = 256 * 1024  # bytes read between two yields, unless one message is larger
SCAN_MAX = 20_000  # messages compared with a text in one request
SCAN_SIZE = 64 * 1024 * 1024  # bytes compared with a text in one request
PREVIEW = 160  # bytes of a payload in a list
SUBJECT_MAX = 1_024  # characters of a subject in an answer
PIECE = 64 * 1024  # bytes of a payload in one answer, unless requested otherwise
PIECE_MAX = 1024 * 1024
HEADERS_MAX = 64 * 1024  # bytes of the headers in an answer
TEXT_MAX = 256  # characters of a text to look for


class Refused(Exception):
    """Raised when the message browser is off; the text of the exception explains how to turn it on."""


class Unreadable(Exception):
    """Raised when a message is temporarily unreadable."""


OFF = "the message browser is off: set messages: true in the block http_authorization, and log in"


class Search(NamedTuple):
    """The stream, filters and position of a request for messages."""

    store: StreamStore
    subject: bytes  # a filter; ">": all
    text: bytes  # in lower case; b"": all
    at: int  # the sequence to begin at
    forward: bool  # towards newer messages
    limit: int


def messages(site: Site, arguments: Arguments) -> Steps:
    """Return a page of messages, by default the newest first.

    `seq` is the sequence to begin at; `forward=true` reads towards newer messages; `subject` is a filter with
    wildcards; `text` selects messages with this text in subject, headers or payload, regardless of case. `next` in
    the answer is the sequence at which the next request continues, or 0.

    Raises:
        Refused: the message browser is off.
        Unreadable: a message is temporarily unreadable.
        BadArgument: the stream is not open on this server, or an argument is invalid.
    """
    check_allowed(site)
    search = _search(site, arguments)
    wanted = search.store.make_filter((search.subject,))
    yield from know_subjects(search.store, wanted)
    found: list[Fields] = []
    scanned = size = step_count = step_size = 0
    # A search for wildcards in a large stream may examine many sequences for one message.
    most = 1 if _is_slow(search) else STEP_COUNT
    seq = yield from _step(search, wanted, search.at)
    while seq and len(found) < search.limit and scanned < SCAN_MAX and size < SCAN_SIZE:
        next_size = search.store.catalogue.size_at(seq)
        if step_count and (step_count >= most or step_size + next_size > STEP_SIZE):
            yield
            step_count = step_size = 0
        message = _read(search.store, seq)
        if message is not None and _has_text(message, search.text):
            found.append(_row(message))
        scanned, step_count = scanned + 1, step_count + 1
        size, step_size = size + next_size, step_size + next_size
        seq = yield from _step(search, wanted, seq + 1 if search.forward else seq - 1)
    store = search.store
    return {
        "messages": found,
        "next": seq,
        "scanned": scanned,
        "first_seq": store.first_seq,
        "last_seq": store.last_seq,
        "msgs": store.msgs,
    }


def check_allowed(site: Site) -> None:
    """Raise Refused if the message browser is off."""
    if not is_allowed(site):
        raise Refused(OFF)


def is_allowed(site: Site) -> bool:
    """Return whether the message browser is on; it requires a login for the monitoring port."""
    login = site.monitored.options.monitoring.login
    return login is not None and login.messages


def _search(site: Site, arguments: Arguments) -> Search:
    _, stream = site.stream_in(arguments)
    store = stream.store
    subject, text = arguments.text("subject") or ">", arguments.text("text")
    if not is_valid_subject(subject.encode("utf-8", "replace")):
        raise BadArgument(f"subject={quoted(subject)}: it is not a subject; wildcards are * and >")
    if len(text) > TEXT_MAX:
        raise BadArgument(f"text has {len(text):,} characters: use up to {TEXT_MAX}")
    limit = arguments.integer("limit") or LIMIT
    if not 0 < limit <= LIMIT_MAX:
        raise BadArgument(f"limit={limit}: use 1 to {LIMIT_MAX}")
    forward = arguments.flag("forward")
    at = arguments.unsigned("seq") or (store.first_seq if forward else store.last_seq)
    return Search(store, subject.encode(), text.encode("utf-8", "replace").lower(), at, forward, limit)


def _is_slow(search: Search) -> bool:
    """Return whether the search for one message needs a step of its own."""
    return search.subject != b">" and subject_has_wildcard(search.subject) and search.store.msgs > SEARCHED


def _step(search: Search, wanted: StoreFilter, seq: int) -> Generator[None, None, int]:
    """Return the sequence of the next match from `seq` on, in the direction of the search, or 0 if there is none."""
    store = search.store
    if seq <= 0 or (search.forward and seq > store.last_seq):
        return 0
    if search.forward:
        return (yield from searches.next_match(store.catalogue, seq, wanted))
    return (yield from searches.last_match(store.catalogue, min(seq, store.last_seq), wanted))


def _read(store: StreamStore, seq: int) -> StoredMessage | None:
    try:
        return store.get(seq)
    except NotNow as error:
        raise Unreadable(f"{error}; try again") from None


def _has_text(message: StoredMessage, text: bytes) -> bool:
    return not text or any(
        text in part.lower() for part in (message.subject, message.payload, message.headers)
    )


def _row(message: StoredMessage) -> Fields:
    return {
        "seq": message.seq,
        "time": time_text(message.ts),
        "subject": _subject(message),
        "size": len(message.payload),
        "headers": message.headers.count(b"\r\n") - 2 if message.headers else 0,
        "preview": message.payload[:PREVIEW].decode("utf-8", "replace"),
    }


def _subject(message: StoredMessage) -> str:
    return message.subject.decode("utf-8", "replace")[:SUBJECT_MAX]


def message_view(site: Site, arguments: Arguments) -> Steps:
    """Return the message with sequence `seq`, and up to `size` bytes of its payload from `offset` on, in base64.

    Raises:
        Refused: the message browser is off.
        Unreadable: the message is temporarily unreadable.
        BadArgument: the stream is not open on this server, it has no such message, or an argument is invalid.
    """
    check_allowed(site)
    _, stream = site.stream_in(arguments)
    seq, offset, size = (arguments.unsigned(name) for name in ("seq", "offset", "size"))
    size = size or PIECE
    if size > PIECE_MAX:
        raise BadArgument(f"size={size}: use up to {PIECE_MAX}")
    yield
    message = _read(stream.store, seq) if 0 < seq <= stream.store.last_seq else None
    if message is None:
        raise BadArgument(f"stream {quoted(stream.name)} has no message {seq}")
    piece = message.payload[offset : offset + size]
    yield
    return {
        "seq": message.seq,
        "time": time_text(message.ts),
        "subject": _subject(message),
        "size": len(message.payload),
        "headers_size": len(message.headers),
        "headers": base64.b64encode(message.headers[:HEADERS_MAX]).decode(),
        "offset": offset,
        "payload": base64.b64encode(piece).decode(),
    }
