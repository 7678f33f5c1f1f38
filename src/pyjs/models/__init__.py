"""Models of pydantic for what a program says to the server and what the server says.

`ServerOptions` configure a server (`pyjs.aio.Server(options)`). `StreamConfig`, `ConsumerConfig` and the requests are
bodies of the JetStream API: `to_json()` has what was set. `parse_answer`, `parse_advisory` and `Jsz.parse` and the
like read what a server answers, pyjs-server or nats-server. docs/embedding.md has examples.

Nothing in the server imports this package.
"""

from pyjs.models.advisories import Advisory, parse_advisory
from pyjs.models.answers import (
    ApiAnswer,
    ApiError,
    ConsumerInfo,
    ErrorResponse,
    PubAck,
    StreamInfo,
    StreamState,
    parse_answer,
)
from pyjs.models.base import nanoseconds
from pyjs.models.config import (
    ConsumerConfig,
    ConsumerLimits,
    ExternalStream,
    Placement,
    RepublishConfig,
    StreamConfig,
    StreamSource,
    SubjectTransformConfig,
)
from pyjs.models.monitoring import Accountz, Accstatz, Connz, Healthz, Jsz, Subsz, Varz
from pyjs.models.requests import (
    ConsumerCreateRequest,
    ConsumerGetnextRequest,
    ConsumerPauseRequest,
    ConsumerUnpinRequest,
    StreamCreateRequest,
    StreamInfoRequest,
    StreamListRequest,
    StreamMsgDeleteRequest,
    StreamMsgGetRequest,
    StreamNamesRequest,
    StreamPurgeRequest,
)
from pyjs.models.server import (
    AccountJetStreamOptions,
    AccountLimitsOptions,
    AccountOptions,
    AuthorizationOptions,
    CertificateOptions,
    JetStreamLimitsOptions,
    JetStreamOptions,
    PermissionsOptions,
    ResponsesOptions,
    ServerOptions,
    SubjectsOptions,
    TlsOptions,
    UserOptions,
)

__all__ = [
    "AccountJetStreamOptions",
    "AccountLimitsOptions",
    "AccountOptions",
    "Accountz",
    "Accstatz",
    "Advisory",
    "ApiAnswer",
    "ApiError",
    "AuthorizationOptions",
    "CertificateOptions",
    "Connz",
    "ConsumerConfig",
    "ConsumerCreateRequest",
    "ConsumerGetnextRequest",
    "ConsumerInfo",
    "ConsumerLimits",
    "ConsumerPauseRequest",
    "ConsumerUnpinRequest",
    "ErrorResponse",
    "ExternalStream",
    "Healthz",
    "JetStreamLimitsOptions",
    "JetStreamOptions",
    "Jsz",
    "PermissionsOptions",
    "Placement",
    "PubAck",
    "RepublishConfig",
    "ResponsesOptions",
    "ServerOptions",
    "StreamConfig",
    "StreamCreateRequest",
    "StreamInfo",
    "StreamInfoRequest",
    "StreamListRequest",
    "StreamMsgDeleteRequest",
    "StreamMsgGetRequest",
    "StreamNamesRequest",
    "StreamPurgeRequest",
    "StreamSource",
    "StreamState",
    "SubjectTransformConfig",
    "SubjectsOptions",
    "Subsz",
    "TlsOptions",
    "UserOptions",
    "Varz",
    "nanoseconds",
    "parse_advisory",
    "parse_answer",
]
