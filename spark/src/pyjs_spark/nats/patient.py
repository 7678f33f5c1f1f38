"""API requests of a plan, repeated after a lost connection or a restart of the server.

A streaming query asks the server many times a second for months; it should not end because the server was down for
some seconds. But if no server ever answered, the error comes at once: the address is wrong, or it does not run.
Only requests that change nothing may be sent this way, since each may be sent twice.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from pyjs_spark.errors import ApiError, SparkError, is_passing
from pyjs_spark.nats import retry
from pyjs_spark.nats.client import connected
from pyjs_spark.nats.settings import ConnectSettings


class PatientApi:
    """JetStream requests over the connection of this process. Plain values, so it can be pickled."""

    def __init__(self, settings: ConnectSettings, patience_s: float) -> None:
        self._settings = settings
        self._patience_s = patience_s  # how long the server may be unreachable
        self._has_answered = False

    def api(self, name: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Send one request. Raises ApiError, ServerUnreachable and other errors of the client."""
        deadline_s = time.monotonic() + (self._patience_s if self._has_answered else 0.0)
        failures = 0
        while True:
            try:
                answer = connected(self._settings).api(name, body)
                self._has_answered = True
                return answer
            except SparkError as error:
                self._has_answered |= isinstance(error, ApiError)
                if not is_passing(error) or time.monotonic() + retry.pause_s(failures) > deadline_s:
                    raise
            retry.pause(failures)
            failures += 1
