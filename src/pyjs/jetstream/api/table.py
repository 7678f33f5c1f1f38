"""The table of all endpoints of the API.

The first request imports this module, since it imports every reader of JSON requests. Neither recovery nor publishing
needs these readers.
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
