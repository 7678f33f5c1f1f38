"""Every endpoint of the API. Loaded for the first request.

Everything that reads JSON requests hangs on this module, and nothing of it is needed to recover streams and to
take publishes: a start need not wait for it.
"""

from __future__ import annotations

from pyjs.jetstream.api import account, bulk, consumers, messages, streams
from pyjs.jetstream.api.endpoint import Endpoint

ENDPOINTS: tuple[Endpoint, ...] = (
    *account.ENDPOINTS,
    *streams.ENDPOINTS,
    *consumers.ENDPOINTS,
    *messages.ENDPOINTS,
    *bulk.ENDPOINTS,
)
