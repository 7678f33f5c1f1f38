"""API endpoints: their subjects, response types and handlers.

Each module of this package lists its endpoints in ENDPOINTS; router.py finds them by subject and adds the envelope. A
handler returns the fields of the response after `type`, raises ApiError to refuse, or returns None for no answer. A
handler whose work may not fit into one turn is a generator: it yields between turns and finally returns the same
values. Later requests for the same stream wait until it is done.

Source: nats.docs "JetStream wire API Reference"; empty-body rules probed on nats-server 2.15.1.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum
from inspect import isgeneratorfunction
from typing import TYPE_CHECKING

from pyjs.core.sink import Request
from pyjs.jetstream import errcodes
from pyjs.jetstream.config.json_strict import Struct
from pyjs.jetstream.config.stream_requests import read
from pyjs.jetstream.errcodes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping
    from typing import Any, TypeAlias

    from pyjs.core.chore import Step
    from pyjs.jetstream.manage.engine import JetStream
    from pyjs.jetstream.stream.stream import Stream

TYPE_PREFIX = "io.nats.jetstream.api.v1."
HEADERS = "headers"  # key under which a handler may return a header block along with the fields
JsonDict: TypeAlias = "dict[str, Any]"
Steps: TypeAlias = "Generator[Step, None, JsonDict]"
MaybeSteps: TypeAlias = "Generator[Step, None, JsonDict | None]"  # None: no answer


@dataclass(eq=False, repr=False, slots=True)
class ApiCall:
    """One request: the account's engine, the subject's tokens after the words of the endpoint, and the message."""

    js: JetStream
    args: tuple[str, ...]
    request: Request

    @property
    def body(self) -> bytes:
        """The payload of the request."""
        return self.request.payload

    def stream(self) -> Stream:
        """Return the stream named by the first argument.

        Raises:
            ApiError: there is no such stream (10059), or the stream or one of its consumers is offline (10194,
                10195).
        """
        offline = self.js.offline.get(self.args[0])
        if offline is not None and offline.consumer == self.args[-1] and len(self.args) > 1:
            raise errcodes.CONSUMER_OFFLINE_REASON.error(err=offline.consumer_reason)
        return self.js.stream(self.args[0])

    def current_stream(self) -> Generator[Step, None, Stream]:
        """Return the stream named by the first argument; a replicated stream first applies all committed entries.

        Raises:
            ApiError: as for `stream`, or if this server may no longer lead the stream (10008).
        """
        stream, replicated = self.stream(), self.js.shared.replicated
        if replicated is None or not replicated.is_replica(stream):
            return stream
        yield from replicated.current_steps(stream)
        return self.stream()

    @property
    def is_replicated(self) -> bool:
        """Whether the stream named by the first argument has replicas on other servers.

        Raises:
            ApiError: as for `stream`.
        """
        replicated = self.js.shared.replicated
        return replicated is not None and replicated.is_replica(self.stream())

    def require_empty(self) -> None:
        """Refuse a request whose payload does not count as empty, see `is_empty`.

        Raises:
            ApiError: the payload is not empty (10038).
        """
        errcodes.NOT_EMPTY_REQUEST.raise_if(not is_empty(self.body))

    def read(self, fields: Struct) -> JsonDict:
        """Return the decoded fields of the payload.

        Raises:
            ApiError: the payload is not JSON or has an invalid field (10025).
        """
        return read(self.body, fields, self.js.options.strict)

    def read_optional(self, fields: Struct) -> JsonDict:
        """Return the decoded fields of the payload; ignore a payload that does not look like JSON.

        Raises:
            ApiError: the payload is not JSON or has an invalid field (10025).
        """
        body = self.body if looks_like_json(self.body) else b""
        return read(body, fields, self.js.options.strict)

    def read_required(self, fields: Struct) -> JsonDict:
        """Return the decoded fields of the payload, which must not be empty.

        Raises:
            ApiError: the payload is empty (10003), or it is not JSON or has an invalid field (10025).
        """
        errcodes.BAD_REQUEST.raise_if(is_empty(self.body))
        return self.read(fields)


class Counted(Enum):
    """The answers of an endpoint that count in `api.total` and are audited."""

    ALL = 1
    ERRORS = 2
    NONE = 3


@dataclass(eq=False, repr=False, slots=True)
class Endpoint:
    """One API subject, with its handler and its rules."""

    words: str  # the words of its subject after "$JS.API."
    handle: Callable[[ApiCall], JsonDict | MaybeSteps | None]
    min_args: int = 1  # minimum number of tokens after the words
    max_args: int = 1
    on_error: JsonDict = field(default_factory=dict)  # extra fields of an error response
    # If set, the answer waits until the change is durable; if the sync fails, this error is the answer.
    unsynced: ErrorCode | None = None
    type_prefix: str = TYPE_PREFIX  # prefix of the response's `type`
    # the rest of `type`; by default, it is made from the words, such as "stream_info_response"
    response: str = ""
    counted: Counted = Counted.ALL
    changes: bool = True  # whether the handler has exclusive access to the stream, also between two steps
    # True: the handler has no exclusive access to the stream; it must check for changes of other consumers itself.
    beside: bool = False
    # As `beside`, but the handler has exclusive access to the consumer named by the second argument.
    of_consumer: bool = False
    # In a cluster: how the server of the client answers if the stream has no leader, from the views of its servers
    # (why/leaderless.py). None: the request is refused, or not answered, as on nats-server.
    leaderless: Callable[[ApiCall, list[JsonDict]], JsonDict] | None = None
    in_steps: bool = field(init=False)  # whether the handler is a generator

    def __post_init__(self) -> None:
        self.in_steps = isgeneratorfunction(self.handle)
        self.response = self.response or f"{self.words.lower().replace('.', '_')}_response"


class Replacements:
    """Endpoints with other handlers, because this server has only a part of the streams."""

    def __init__(
        self, handlers: Mapping[str, Callable[[ApiCall], MaybeSteps]], counted: Mapping[str, Counted]
    ) -> None:
        """Store the replacements, by the words of endpoints.

        `handlers` has the other handlers; `counted` replaces `Endpoint.counted` of some of these endpoints.
        """
        self._handlers = handlers
        self._counted = counted
        self._made: dict[str, Endpoint] = {}

    def of(self, endpoint: Endpoint) -> Endpoint:
        """Return `endpoint` with the handler that replaces its own, or unchanged if there is none."""
        words = endpoint.words
        if words not in self._handlers:
            return endpoint
        found = self._made.get(words)
        if found is None:
            counted = self._counted.get(words, endpoint.counted)
            found = self._made[words] = replace(endpoint, handle=self._handlers[words], counted=counted)
        return found


def is_empty(body: bytes) -> bool:
    """Return whether a payload counts as empty: only white space, or a JSON object without fields."""
    text = body.strip()
    return not text or (text[:1] == b"{" and text[-1:] == b"}" and not text[1:-1].strip())


def looks_like_json(body: bytes) -> bool:
    """Return whether a payload begins like a JSON object or list."""
    return body.lstrip(b" \t\r\n")[:1] in (b"{", b"[")


def needs_cluster(call: ApiCall) -> JsonDict:
    """Refuse a request that only a server in a cluster can answer.

    Raises:
        ApiError: always.
    """
    raise errcodes.CLUSTER_REQUIRED.error()


ANY_ARGS = 1 << 10
