"""Waits after temporary failures: one policy for reads, writes and requests.

The pauses grow fast, since most failures either end at once (a connection), or last some seconds (a restart, the
election of a leader). errors.is_passing() returns whether a failure is temporary.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from pyjs_spark.errors import ApiError, SparkError, is_passing
from pyjs_spark.nats.client import connected
from pyjs_spark.nats.settings import ConnectSettings

FIRST_PAUSE_S = 0.1
GROWTH = 4
PAUSE_MAX_S = 5.0


def pause_s(failures: int) -> float:
    """Return the pause after `failures` + 1 failures, in seconds.

    The first five pauses last about 12 s together.
    """
    return min(PAUSE_MAX_S, FIRST_PAUSE_S * float(GROWTH**failures))


def pause(failures: int) -> None:
    """Sleep for the pause after `failures` + 1 failures."""
    time.sleep(pause_s(failures))


class PatientApi:
    """A sender of the JetStream requests of a query plan, over the connection of this process.

    The object holds only plain values, so it can be pickled.

    After a lost connection or a restart of the server, a request is repeated: a streaming query sends many
    requests per second for months, and should not end because the server was down for some seconds. If no
    server has ever answered, the first error is raised at once, since the address is probably wrong. A request may
    be sent twice, so it must not change anything.
    """

    def __init__(self, settings: ConnectSettings, patience_s: float) -> None:
        self._settings = settings
        self._patience_s = patience_s  # seconds for which the server may be unreachable
        self._has_answered = False

    def api(self, name: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Send one request, and return the answer.

        Raises:
            ApiError: the answer is an error.
            ServerUnreachable: no server accepts the connection.
            SparkError: another error of the client.
        """
        deadline_s = time.monotonic() + (self._patience_s if self._has_answered else 0.0)
        failures = 0
        while True:
            try:
                answer = connected(self._settings).api(name, body)
                self._has_answered = True
                return answer
            except SparkError as error:
                self._has_answered |= isinstance(error, ApiError)
                if not is_passing(error) or time.monotonic() + pause_s(failures) > deadline_s:
                    raise
            pause(failures)
            failures += 1
