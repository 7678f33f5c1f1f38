"""The table of all endpoints of the API.

This module imports every reader of JSON requests, which neither recovery nor publishing needs. So it is not imported
before the first request.
"""

from __future__ import annotations

from pyjs.jetstream.api import account, bulk, consumers, dead_letters, messages, streams, why
from pyjs.jetstream.api.endpoint import Endpoint

ENDPOINTS: tuple[Endpoint, ...] = (
    *account.ENDPOINTS,
    *streams.ENDPOINTS,
    *consumers.ENDPOINTS,
    *messages.ENDPOINTS,
    *bulk.ENDPOINTS,
    *why.ENDPOINTS,
    *dead_letters.ENDPOINTS,
)
