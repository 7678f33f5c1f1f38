"""The action that replays dead letters; it runs the API's own function in the turns of the server.

The body of the request is that of `$JS.API.PYJS.DEAD_LETTERS.REPLAY.<stream>`, and the API checks it. Only one replay
runs at a time, and it runs to its end even if the browser disconnects. The log has a line about each replay.

Source: docs/dead-letters.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyjs.base.gotext import quoted
from pyjs.core.sink import Request
from pyjs.jetstream.errcodes import ApiError, LeaderChanged
from pyjs.jetstream.why.streams import why_away
from pyjs.monitor.arguments import BadArgument
from pyjs.monitor.dashboard.dead_letters import is_replay_allowed, leader_elsewhere
from pyjs.monitor.dashboard.posted import ActionRefused, check_posted

if TYPE_CHECKING:
    from collections.abc import Generator

    from pyjs.base.log import Log
    from pyjs.core.chore import Step
    from pyjs.jetstream.manage.engine import JetStream
    from pyjs.jetstream.stream.stream import Stream
    from pyjs.monitor.arguments import Arguments
    from pyjs.monitor.dashboard.posted import Posted
    from pyjs.monitor.dashboard.site import Fields, Site

    Outcome = list[Fields | ApiError]  # of one replay; empty until it has ended, and if it has ended early

ACTION = "replay"
OFF = "replays are off: set replay: true in the block http_authorization, and log in"
RUNNING = "another replay runs; try again when it has ended"
BROKEN = "the replay has ended early; the log names the cause"
MOVED = "another server leads the stream now; open its dashboard"
SHOWN_MAX = 500  # characters of a text of the API in the log: it may quote the request
STATUSES = (400, 404, 503)  # codes of the API that are also statuses of an answer


class Replays:
    """The replays that the page requests; at most one runs at a time."""

    def __init__(self, site: Site, log: Log) -> None:
        self._site = site
        self._log = log
        self._is_running = False

    def answer(self, arguments: Arguments, posted: Posted | None) -> Generator[Any, None, Fields]:
        """Replay letters of the stream that `acc` and `stream` name, and return the fields of the API's response.

        The generator yields a future, for which the caller must wait.

        Raises:
            ActionRefused: replays are off, the request is wrong or not from the page, or the API refuses it.
        """
        if posted is None:
            raise ActionRefused(405, "replay letters with a POST request")
        if not is_replay_allowed(self._site):
            raise ActionRefused(403, OFF)
        check_posted(posted, ACTION)
        js, stream = self._led_stream(arguments)
        if self._is_running:
            raise ActionRefused(503, RUNNING)
        self._is_running = True
        outcome: Outcome = []
        yield from self._site.monitored.in_turns(self._steps(js, stream, posted, outcome))
        return _result(outcome)

    def _led_stream(self, arguments: Arguments) -> tuple[JetStream, Stream]:
        """Return a stream that this server leads, with the JetStream of its account. Raises ActionRefused."""
        try:
            js, stream = self._site.stream_in(arguments)
        except BadArgument as error:
            engine = self._site.engine(arguments.text("acc"))
            away = [] if engine is None else why_away(engine, arguments.text("stream"))
            raise ActionRefused(404, ". ".join([str(error), *(each.text for each in away)])) from None
        leader = leader_elsewhere(js, stream)
        if leader is not None:
            where = (
                f"{leader} leads it: open the dashboard of that server" if leader else "it has no leader now"
            )
            raise ActionRefused(409, f"this server does not lead the stream {quoted(stream.name)}; {where}")
        return js, stream

    def _steps(
        self, js: JetStream, stream: Stream, posted: Posted, outcome: Outcome
    ) -> Generator[Step, None, None]:
        """Replay the letters as the API does, log the numbers, and append the result to `outcome`."""
        # imported lazily: only a replay needs them
        from pyjs.jetstream.api import dead_letters
        from pyjs.jetstream.api.endpoint import ApiCall

        call = ApiCall(js, (stream.name,), Request(_no_handler, b"", payload=posted.body))
        where = f"Replay of dead letters of stream {quoted(stream.name)} in account {quoted(js.account.name)}"
        by = f"{where}, by the dashboard at {posted.peer}"
        try:
            found = yield from js.gates.within(stream.name, False, lambda: dead_letters.replay(call))
            numbers = ", ".join(f"{found[name]} {name}" for name in ("replayed", "failed", "skipped"))
            self._log.info(f"{by}: {numbers}")
            outcome.append(found)
        except ApiError as error:
            self._log.info(f"{by}: refused: {quoted(error.description[:SHOWN_MAX])}")
            outcome.append(error)
        finally:
            self._is_running = False


def _result(outcome: Outcome) -> Fields:
    """Return the fields of the API's response. Raises ActionRefused."""
    found = outcome[0] if outcome else ActionRefused(500, BROKEN)
    if isinstance(found, LeaderChanged):
        found = ActionRefused(503, MOVED)
    elif isinstance(found, ApiError):
        found = ActionRefused(found.code if found.code in STATUSES else 500, found.description)
    if isinstance(found, ActionRefused):
        raise found
    return found


def _no_handler(request: Request) -> None:
    """Do nothing: the request is never delivered, since the action calls the endpoint itself."""
