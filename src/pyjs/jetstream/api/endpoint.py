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

    def require_body(self) -> None:
        """Refuse a request without payload.

        Raises:
            ApiError: 10003.
        """
        errcodes.BAD_REQUEST.raise_if(is_empty(self.body))

    def optional_body(self) -> bytes:
        """Return the payload, or nothing when it does not look like JSON: such a payload is ignored."""
        return self.body if looks_like_json(self.body) else b""


@dataclass(eq=False, repr=False, slots=True)
class Endpoint:
    """One kind of request."""

    words: str  # of the subject, behind "$JS.API."
    response: str  # "stream_info_response": behind the prefix below
    handle: Callable[[ApiCall], JsonDict | Steps | None]
    min_args: int = 1  # tokens behind the words
    max_args: int = 1
    on_error: JsonDict = field(default_factory=dict)  # fields that an error response shows as well
    unsynced: ErrorCode | None = None  # set: the answer waits until it is durable, or is this error
    type_prefix: str = TYPE_PREFIX  # of the response's `type`
    counted: bool = True  # whether an answer without error counts in `api.total` and is audited
    changes: bool = True  # whether others may not look at what it is about, or change it, between two steps
    beside: bool = (
        False  # others may change other consumers of the stream meanwhile; the handler sees to its own
    )
    of_consumer: bool = (
        False  # it is about the consumer that the second argument names: beside, and alone with it
    )
    in_steps: bool = field(init=False)  # whether the handler may take more than one

    def __post_init__(self) -> None:
        self.in_steps = isgeneratorfunction(self.handle)


def is_empty(body: bytes) -> bool:
    """Return whether a payload counts as none: blanks, or an object without fields."""
    text = body.strip()
    return not text or (text[:1] == b"{" and text[-1:] == b"}" and not text[1:-1].strip())


def looks_like_json(body: bytes) -> bool:
    """Return whether a payload begins like an object or a list."""
    return body.lstrip(b" \t\r\n")[:1] in (b"{", b"[")


ANY_ARGS = 1 << 10


__all__ = ["ANY_ARGS", "ApiCall", "Endpoint", "JsonDict", "Steps", "is_empty", "looks_like_json"]
