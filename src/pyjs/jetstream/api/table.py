"""The table of all endpoints of the API.

Imported by the first request, not at the start: it imports every reader of JSON requests, which neither recovery nor
publishing needs.
"""

from __future__ import annotations

from pyjs.jetstream.api import account, bulk, consumers, messages, streams, why
from pyjs.jetstream.api.endpoint import Endpoint

ENDPOINTS: tuple[Endpoint, ...] = (
    *account.ENDPOINTS,
    *streams.ENDPOINTS,
    *consumers.ENDPOINTS,
    *messages.ENDPOINTS,
    *bulk.ENDPOINTS,
    *why.ENDPOINTS,
)
