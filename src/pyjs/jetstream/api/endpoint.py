"""What an API endpoint is: its subject, its response type, and the function that answers.

Each module of this package lists its endpoints in ENDPOINTS; router.py finds them by subject and wraps answers
into envelopes. A handler returns the fields of the response behind `type`, raises ApiError to refuse, or returns
None to stay silent. One that may have to do more than fits between two reads of the connections is a generator: it
yields each time it did enough for one turn, and returns the same; others with the same stream wait for its end.

Source: nats.docs "JetStream wire API Reference"; empty-body rules probed on nats-server 2.15.1.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from inspect import isgeneratorfunction
from typing import TYPE_CHECKING

from pyjs.core.sink import Request
from pyjs.jetstream import errcodes
from pyjs.jetstream.config.json_strict import Struct
from pyjs.jetstream.config.stream_requests import read
from pyjs.jetstream.errcodes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from typing import Any, TypeAlias

    from pyjs.core.chore import Step
    from pyjs.jetstream.manage.engine import JetStream
    from pyjs.jetstream.stream.stream import Stream

TYPE_PREFIX = "io.nats.jetstream.api.v1."
JsonDict: TypeAlias = "dict[str, Any]"
Steps: TypeAlias = "Generator[Step, None, JsonDict]"


@dataclass(eq=False, repr=False, slots=True)
class ApiCall:
    """One request: the account's engine, what the subject says behind the endpoint's words, and the message."""

    js: JetStream
    args: tuple[str, ...]
    request: Request

    @property
    def body(self) -> bytes:
        """The payload."""
        return self.request.payload

    def stream(self) -> Stream:
        """Return the stream that the first argument names.

        Raises:
            ApiError: 10059.
        """
        return self.js.stream(self.args[0])

    def require_empty(self) -> None:
        """Refuse a payload.

        Raises:
            ApiError: 10038.
        """
        errcodes.NOT_EMPTY_REQUEST.raise_if(not is_empty(self.body))

    def read(self, fields: Struct) -> JsonDict:
        """Return the fields that the payload sets.

        Raises:
            ApiError: 10025, it is not JSON or holds something unknown.
        """
        return read(self.body, fields, self.js.options.strict)

    def read_optional(self, fields: Struct) -> JsonDict:
        """Return as `read` does; a payload that does not look like JSON is ignored."""
        body = self.body if looks_like_json(self.body) else b""
        return read(body, fields, self.js.options.strict)

    def read_required(self, fields: Struct) -> JsonDict:
        """Return as `read` does, of a request that must have a payload. Raises ApiError: 10003."""
        errcodes.BAD_REQUEST.raise_if(is_empty(self.body))
        return self.read(fields)


@dataclass(eq=False, repr=False, slots=True)
class Endpoint:
    """One kind of request."""

    words: str  # of the subject, behind "$JS.API."
    handle: Callable[[ApiCall], JsonDict | Steps | None]
    min_args: int = 1  # tokens behind the words
    max_args: int = 1
    on_error: JsonDict = field(default_factory=dict)  # fields that an error response shows as well
    unsynced: ErrorCode | None = None  # set: the answer waits until it is durable, or is this error
    type_prefix: str = TYPE_PREFIX  # of the response's `type`
    response: str = ""  # what is behind it; by the words unless said: "stream_info_response"
    counted: bool = True  # whether an answer without error counts in `api.total` and is audited
    changes: bool = True  # whether others may not look at what it is about, or change it, between two steps
    # Others may change other consumers of the stream meanwhile; the handler sees to its own.
    beside: bool = False
    # It is about the consumer that the second argument names: beside, and alone with it.
    of_consumer: bool = False
    in_steps: bool = field(init=False)  # whether the handler may take more than one

    def __post_init__(self) -> None:
        self.in_steps = isgeneratorfunction(self.handle)
        self.response = self.response or f"{self.words.lower().replace('.', '_')}_response"


def is_empty(body: bytes) -> bool:
    """Return whether a payload counts as none: blanks, or an object without fields."""
    text = body.strip()
    return not text or (text[:1] == b"{" and text[-1:] == b"}" and not text[1:-1].strip())


def looks_like_json(body: bytes) -> bool:
    """Return whether a payload begins like an object or a list."""
    return body.lstrip(b" \t\r\n")[:1] in (b"{", b"[")


def needs_cluster(call: ApiCall) -> JsonDict:
    """Refuse what only a cluster can do."""
    raise errcodes.CLUSTER_REQUIRED.error()


ANY_ARGS = 1 << 10
