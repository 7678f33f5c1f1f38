"""$JS.API.PYJS.BULK.*: ranges of a stream as raw records, for programs that read a whole stream.

This is an extension of pyjs-server: nats-server does not answer these subjects. A stream allows bulk reads if it
allows direct gets, which reveal the same data. Each request does a bounded amount of work and leaves no state: the
reader requests the next range. docs/bulk-read.md specifies both requests and the chunks, with an example.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyjs.base.errors import NotNow
from pyjs.base.gotext import time_text
from pyjs.core.session import ClientSession
from pyjs.jetstream import errcodes
from pyjs.jetstream.api.endpoint import ApiCall, Counted, Endpoint, JsonDict
from pyjs.jetstream.config import stream_requests
from pyjs.jetstream.config.json_strict import parse_time_ns
from pyjs.jetstream.errcodes import ApiError
from pyjs.jetstream.stream.stream import Stream
from pyjs.store.file.bulk import BulkReader, describe_segments, segment_count
from pyjs.store.file.store import FileStore
from pyjs.subjects.tokens import is_valid_subject

if TYPE_CHECKING:
    from typing import Any

TYPE_PREFIX = "io.pyjs.api.v1."
LIST_PAGE = 1024  # number of segments in one answer
SIZE_DEFAULT = 1024 * 1024  # bytes of all chunks that answer one request
SIZE_MAX = 2 * 1024 * 1024  # bytes; more would delay other clients by over two milliseconds
CHUNK_DEFAULT = 256 * 1024
CHUNK_MIN, CHUNK_MAX = 4 * 1024, 1024 * 1024
FILTERS_MAX = 1000  # maximum number of filters, each of which is compared with each subject


def list_segments(call: ApiCall) -> JsonDict:
    """Return a stream's segments, oldest first, one page per request."""
    given = stream_requests.read(call.body, stream_requests.BULK_LIST_REQUEST, True)
    stream = _allowed(call)
    store, offset = stream.store, given.get("offset", 0)
    if offset < 0:
        raise _wrong(f"offset is {offset}: it is the number of segments to leave out, 0 or more")
    out: JsonDict = {
        "stream": stream.name,
        "created": time_text(stream.created_ns),
        "first_seq": store.first_seq,
        "last_seq": store.last_seq,
        "messages": store.msgs,
        "bytes": store.bytes,
    }
    if isinstance(store, FileStore):
        out["directory"] = store.files.directory
    out |= {"offset": offset, "limit": LIST_PAGE, "total": segment_count(store)}
    return out | {"segments": describe_segments(store, offset, LIST_PAGE)}


def read(call: ApiCall) -> None:
    """Send chunks of the requested range, up to the requested size and the room in the client's output."""
    given = stream_requests.read(call.body, stream_requests.BULK_READ_REQUEST, True)
    stream = _allowed(call)
    _check_created(stream, given.get("created", ""))
    seq, end_seq = given.get("seq", 0) or 1, given.get("end_seq", 0)
    if 0 < end_seq < seq:
        raise _wrong(f"end_seq {end_seq} is before seq {seq}: it is the first sequence not to be read, or 0")
    size = _size(given, "max_bytes", SIZE_DEFAULT, 1, SIZE_MAX)
    chunk_size = _size(given, "chunk_bytes", CHUNK_DEFAULT, CHUNK_MIN, CHUNK_MAX)
    if isinstance(call.request.session, ClientSession):
        size = _fitting(size, call.request.session.room())
    wanted = stream.store.make_filter(_subjects(given.get("subjects", [])))
    reader = BulkReader(
        stream.store,
        wanted,
        seq,
        end_seq,
        given.get("entries_only", False),
        stream.created_ns,
        given.get("unchecked", False),
    )
    if not call.request.reply:
        return
    try:
        chunks = reader.read(size, chunk_size)
    except NotNow:
        raise errcodes.INSUFFICIENT_RESOURCES.error() from None
    for chunk in chunks:
        call.js.account.send(call.request.reply, chunk)


def _allowed(call: ApiCall) -> Stream:
    """Return the stream of a request.

    Raises:
        ApiError: there is no such stream, or it does not allow direct gets.
    """
    stream = call.stream()
    errcodes.BULK_NOT_ALLOWED.raise_if(not stream.config.allow_direct, stream=stream.name)
    return stream


def _check_created(stream: Stream, wanted: str) -> None:
    """Check that the stream was created at the time `wanted`, unless `wanted` is "".

    Raises:
        ApiError: the request is meant for another stream of the same name, or the time is invalid.
    """
    if not wanted:
        return
    try:
        wanted_ns = parse_time_ns(wanted)
    except ValueError:
        raise _wrong(f'created is "{wanted}": it is a time as STREAM.INFO shows it, or empty') from None
    if wanted_ns != stream.created_ns:
        created = time_text(stream.created_ns)
        raise errcodes.BULK_OTHER_STREAM.error(stream=stream.name, created=created, wanted=wanted)


def _size(given: dict[str, Any], name: str, default: int, low: int, high: int) -> int:
    value: int = given.get(name, 0)
    if value < 0:
        raise _wrong(f"{name} is {value}: it is a number of bytes, or 0 for {default}")
    return min(max(value or default, low), high)


def _fitting(size: int, room: int) -> int:
    """Return how many of `size` bytes to send now, or 0 if the client's output has too little room.

    `room` is the number of bytes that the client's output may still grow by.
    """
    return min(size, room // 2) if room // 2 >= CHUNK_MIN else 0


def _subjects(texts: list[str]) -> list[bytes]:
    if len(texts) > FILTERS_MAX:
        raise _wrong(
            f"{len(texts)} subjects: {FILTERS_MAX} are the most, read without them and choose yourself"
        )
    subjects = [text.encode() for text in texts]
    for subject, text in zip(subjects, texts, strict=True):
        if not is_valid_subject(subject):
            raise _wrong(f'"{text}" in subjects is no subject')
    return subjects


def _wrong(text: str) -> ApiError:
    return errcodes.BULK_BAD_REQUEST.error(err=text)


ENDPOINTS = (
    Endpoint(
        "PYJS.BULK.LIST", list_segments, type_prefix=TYPE_PREFIX, changes=False, response="bulk_list_response"
    ),
    Endpoint(
        "PYJS.BULK.READ",
        read,
        type_prefix=TYPE_PREFIX,
        counted=Counted.ERRORS,
        changes=False,
        response="bulk_read_response",
    ),
)
