"""$JS.API.DIRECT.GET.*: stored messages with their own headers and payload, without a JSON envelope.

The first request imports this module; the subscriptions are in direct_subscriptions.py.

Source: ADR-31; statuses and headers probed on nats-server 2.15.1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyjs.base.bounds import wrapped_ns
from pyjs.base.errors import NotNow
from pyjs.base.gotext import time_text
from pyjs.core.account import Account
from pyjs.core.sink import Request
from pyjs.jetstream.api.direct_answer import DirectAnswers
from pyjs.jetstream.api.endpoint import is_empty
from pyjs.jetstream.api.messages import find, is_conflicting, last_of
from pyjs.jetstream.config.json_strict import JsonFault, decode, parse_time_ns
from pyjs.jetstream.config.level import needs_higher_level
from pyjs.jetstream.config.stream_requests import GET_MSG_REQUEST
from pyjs.jetstream.manage.stream_info import SUBJECTS_STEP, know_subjects
from pyjs.jetstream.stream.stream import Stream
from pyjs.store import searches
from pyjs.store.index.filter import StoreFilter
from pyjs.store.index.last_seqs import LastSeqs
from pyjs.store.store import StoredMessage

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from typing import Any, TypeAlias

    Search: TypeAlias = "Generator[None, None, StoredMessage | None]"

MULTI_SUBJECTS_MAX = 1024
BATCH_MAX = 100_000  # maximum number of messages in one batch
NOT_NOW = "500 Insufficient Resources"  # not 503, which clients take for "no responders"
REPLY_BYTES_MAX = 64 * 1024 * 1024  # maximum bytes of one batch, unless the request sets a limit
STEP_SIZE = 256 * 1024  # bytes sent in one step, where each message counts as MESSAGE_COST more
MESSAGE_COST = 1500  # bytes: sending a message takes as long as sending this many bytes, five microseconds
# Each of these fields selects one message, or the first message of a batch.
MESSAGE_FIELDS = ("seq", "last_by_subj", "next_by_subj", "multi_last", "start_time")


def _is_contradiction(given: dict[str, Any]) -> bool:
    """Return whether the fields of a request contradict each other."""
    last, following = given.get("last_by_subj"), given.get("next_by_subj")
    several = given.get("multi_last")
    if (given.get("up_to_seq") and "up_to_time" in given) or (several and (last or following)):
        return True
    if last and given.get("batch", 0) > 0:
        return True
    return not several and is_conflicting(given)


class DirectGet:
    """The handler of the direct gets of one stream."""

    def __init__(self, account: Account, stream: Stream, prefixes: tuple[bytes, ...]) -> None:
        self._account = account
        self._stream = stream
        self._answers = DirectAnswers(stream.name.encode())
        self._prefixes = prefixes  # of request subjects: the wanted message's subject follows

    def get(self, request: Request) -> Iterator[None] | None:
        """Answer a request that selects its messages in the body; return the steps that remain, or None."""
        given = self._read(request)
        if given is None:
            return None
        if not any(given.get(name) for name in MESSAGE_FIELDS):
            self._status(request, "408 Empty Request")
        elif _is_contradiction(given):
            self._status(request, "408 Bad Request")
        elif given.get("multi_last"):
            return self._get_multi(request, given)
        elif given.get("batch") and not given.get("last_by_subj"):
            return self._get_batch(request, given)
        else:
            return self._reply_found(request, find(self._stream.store, given), given.get("no_hdr", False))
        return None

    def get_last(self, request: Request) -> Iterator[None] | None:
        """Answer a request that names a subject after the prefix: send the last message of that subject."""
        no_hdr = False
        if request.headers and request.reply and needs_higher_level(request.headers):
            self._status(request, "412 Required Api Level")
            return None
        if request.payload and not is_empty(request.payload):
            given = self._read(request)
            if given is None:
                return None
            if any(given.get(name) for name in (*MESSAGE_FIELDS, "batch", "up_to_seq", "up_to_time")):
                self._status(request, "408 Bad Request")
                return None
            no_hdr = given.get("no_hdr", False)
        subject = request.subject
        for prefix in self._prefixes:
            if subject.startswith(prefix):
                subject = subject[len(prefix) :]
                break
        if not no_hdr and self._answers.send_last(self._account, self._stream.store, subject, request.reply):
            return None
        return self._reply_found(request, last_of(self._stream.store, subject), no_hdr)

    def _read(self, request: Request) -> dict[str, Any] | None:
        """Return the fields of a request, or None if it has no reply subject or was answered with an error."""
        if not request.reply:
            return None
        if needs_higher_level(request.headers):
            self._status(request, "412 Required Api Level")
            return None
        try:
            return decode(request.payload, GET_MSG_REQUEST, strict=False)
        except JsonFault:
            self._status(request, "408 Malformed Request")
            return None

    def _status(self, request: Request, status: str, fields: bytes = b"") -> None:
        self._account.send(request.reply, b"", b"NATS/1.0 %b\r\n%b\r\n" % (status.encode(), fields))

    def _reply_found(self, request: Request, search: Search, no_hdr: bool) -> Iterator[None]:
        try:
            message = yield from search
        except NotNow:
            self._status(request, NOT_NOW)
            return
        if message is None:
            self._status(request, "404 Message Not Found")
        else:
            self._send(request, message, no_hdr)

    def _send(self, request: Request, message: StoredMessage, no_hdr: bool, more: bytes = b"") -> int:
        """Send one stored message; return its size in the store in bytes, which counts towards `max_bytes`."""
        headers = b"" if no_hdr else self._headers(message, more)
        self._account.send(request.reply, message.payload, headers)
        return len(message.subject) + len(message.headers) + len(message.payload)

    def _headers(self, message: StoredMessage, more: bytes) -> bytes:
        stored = message.headers[:-2] if message.headers else b"NATS/1.0\r\n"
        return (
            b"%bNats-Stream: %b\r\nNats-Subject: %b\r\nNats-Sequence: %d\r\nNats-Time-Stamp: %b\r\n%b\r\n"
            % (
                stored,
                self._stream.name.encode(),
                message.subject,
                message.seq,
                time_text(message.ts).encode(),
                more,
            )
        )

    # -- several messages ----------------------------------------------------------------------------------

    def _get_batch(self, request: Request, given: dict[str, Any]) -> Iterator[None]:
        store = self._stream.store
        subject = given.get("next_by_subj", "")
        wanted = store.make_filter((subject.encode(),) if subject else ())
        first = max(given.get("seq", 0), 1)
        if "start_time" in given:
            first = (
                store.catalogue.seq_at(wrapped_ns(parse_time_ns(given["start_time"]))) or store.last_seq + 1
            )
        yield from know_subjects(store, wanted)
        seq = yield from searches.next_match(store.catalogue, first, wanted)
        if seq == 0:
            self._status(request, "404 Message Not Found")
            return
        pending = yield from searches.count(store.catalogue, seq, wanted)
        seqs = self._matches(seq, wanted, max(min(given["batch"], BATCH_MAX), 0))
        yield from self._send_each(request, given, seqs, pending, 0)

    def _matches(self, seq: int, wanted: StoreFilter, most: int) -> Iterator[int]:
        """Yield up to `most` matching sequences from `seq` on, and 0 after each step of a search without a match."""
        catalogue = self._stream.store.catalogue
        while most:
            yield seq
            most -= 1
            seq, rest = catalogue.next_step(seq + 1, wanted)
            while rest:
                yield 0
                seq, rest = catalogue.next_step(rest, wanted)
            if seq == 0:
                return

    def _get_multi(self, request: Request, given: dict[str, Any]) -> Iterator[None]:
        store = self._stream.store
        up_to = given.get("up_to_seq", 0)
        if "up_to_time" in given:
            after = (
                store.catalogue.seq_at(wrapped_ns(parse_time_ns(given["up_to_time"]))) or store.last_seq + 1
            )
            if after <= store.first_seq:
                self._status(request, "404 No Results")
                return
            up_to = after - 1
        wanted = store.make_filter(subject.encode() for subject in given["multi_last"])
        yield from know_subjects(store, wanted)
        search = LastSeqs(store.catalogue, wanted, up_to, MULTI_SUBJECTS_MAX)
        while not search.step(SUBJECTS_STEP):
            yield
        if search.has_too_many:
            self._status(request, "413 Too Many Results")
            return
        seqs = [seq for seq in search.found() if seq >= given.get("seq", 0)]
        if not seqs:
            self._status(request, "404 No Results")
            return
        batch = max(given.get("batch", 0) or len(seqs), 0)
        yield from self._send_each(request, given, iter(seqs[:batch]), len(seqs), up_to or store.last_seq)

    def _send_each(
        self, request: Request, given: dict[str, Any], seqs: Iterator[int], pending: int, up_to: int
    ) -> Iterator[None]:
        """Send messages until `batch` or `max_bytes` is reached, then the status that ends a batch.

        A 0 in `seqs` ends a step; the generator yields between steps. If `up_to` is not 0, the request has
        `multi_last`: all messages are then sent with headers, and the final status contains `up_to`.
        """
        size_left = given.get("max_bytes", 0) or REPLY_BYTES_MAX
        bare = given.get("no_hdr", False) and not up_to
        last, step_left = 0, STEP_SIZE
        for seq in seqs:
            if step_left <= 0 or seq == 0:
                yield
                if not self._account.has_interest(request.reply):
                    return  # the client disconnected
                step_left = STEP_SIZE
            if seq == 0:
                continue
            try:
                message = self._stream.store.get(seq)
            except NotNow:
                self._status(request, NOT_NOW)
                return
            if message is None:
                continue
            pending -= not bare  # nats-server does not subtract messages that it sends without headers
            more = b"Nats-Num-Pending: %d\r\nNats-Last-Sequence: %d\r\n" % (pending, last)
            size = self._send(request, message, bare, more)
            size_left -= size
            step_left -= size + MESSAGE_COST
            last = seq
            if size_left <= 0:
                break
        fields = b"Nats-Num-Pending: %d\r\nNats-Last-Sequence: %d\r\n" % (pending, last)
        if up_to:
            fields += b"Nats-UpTo-Sequence: %d\r\n" % up_to
        self._status(request, "204 EOB", fields)
