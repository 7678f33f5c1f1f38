"""$JS.API.PYJS.DEAD_LETTERS.REPLAY.<stream>: publish the messages of dead letters again.

This is an extension of pyjs-server: nats-server does not answer this subject. docs/dead-letters.md describes it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyjs.jetstream import errcodes
from pyjs.jetstream.api.endpoint import ApiCall, Endpoint, JsonDict, Steps
from pyjs.jetstream.config import stream_requests
from pyjs.jetstream.dead_letters.replay import Replay, Wanted
from pyjs.subjects.tokens import is_valid_subject

if TYPE_CHECKING:
    from pyjs.jetstream.errcodes import ApiError

TYPE_PREFIX = "io.pyjs.api.v1."
LIMIT_DEFAULT, LIMIT_MAX = 100, 1000


def replay(call: ApiCall) -> Steps:
    """Replay dead letters of a stream; return the numbers of replayed, failed and skipped letters."""
    given = stream_requests.read(call.body or b"{}", stream_requests.DEAD_LETTERS_REPLAY_REQUEST, True)
    stream = yield from call.current_stream()
    limit, subject = given.get("limit", LIMIT_DEFAULT), given.get("subject", "").encode()
    if not 1 <= limit <= LIMIT_MAX:
        raise _wrong(f"limit is {limit}: it is the maximum number of letters, 1 to {LIMIT_MAX}")
    if subject and not is_valid_subject(subject):
        raise _wrong("subject is no valid subject: it matches the subjects of messages, such as orders.>")
    keep = given.get("keep", False)
    if not keep and (stream.config.sealed or stream.config.deny_delete):
        raise _wrong('the stream does not allow to delete messages: send "keep": true to keep the letters')
    wanted = Wanted(
        given.get("seq", 0),
        limit,
        given.get("stream", "").encode(),
        given.get("consumer", "").encode(),
        subject,
        given.get("reason", "").encode(),
        keep,
    )
    result = yield from Replay(call.js, stream, wanted).steps()
    out: JsonDict = {"stream": stream.name, "replayed": result.replayed, "failed": result.failed}
    out |= {"skipped": result.skipped, "next_seq": result.next_seq}
    return out | ({"errors": result.errors} if result.errors else {})


def _wrong(text: str) -> ApiError:
    return errcodes.DEAD_LETTERS_REQUEST.error(err=text)


ENDPOINTS = (
    Endpoint(
        "PYJS.DEAD_LETTERS.REPLAY",
        replay,
        type_prefix=TYPE_PREFIX,
        response="dead_letters_replay_response",
        changes=False,
    ),
)
