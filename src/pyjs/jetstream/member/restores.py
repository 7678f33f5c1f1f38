"""Builds a stream from an archive on one server, and then adds the stream to the cluster.

The leader of the metadata chooses the server, which answers with the subject for the chunks. A stream is not in the
metadata while it is being built. When it is complete and durable, the server reports that to the leader; as soon as
the metadata has the stream, the keeper of streams adds it to the account. Other replicas are added as for any stream
that lacks replicas. The creation time is that of the restore, not that of the archived stream, so the stream differs
from earlier ones of its name.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from pyjs.base.clock import NS_PER_MS, NS_PER_S
from pyjs.core.sink import Request
from pyjs.jetstream import errcodes
from pyjs.jetstream.api import audit
from pyjs.jetstream.api.endpoint import is_empty
from pyjs.jetstream.cluster.assignments import stored_config
from pyjs.jetstream.cluster.entries import StreamRestored
from pyjs.jetstream.config import stream_requests
from pyjs.jetstream.errcodes import ApiError
from pyjs.jetstream.member.keeper import Key
from pyjs.jetstream.member.notes import Refused, Restored

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from pyjs.core.chore import Step
    from pyjs.jetstream.api.endpoint import ApiCall, JsonDict, MaybeSteps
    from pyjs.jetstream.config.stream import StreamConfig
    from pyjs.jetstream.member.keeper import Keeper
    from pyjs.jetstream.member.member_node import MemberNode
    from pyjs.jetstream.member.notes import Order
    from pyjs.jetstream.stream.stream import Stream
    from pyjs.jetstream.transfer.building import StreamBuild

WORDS = "STREAM.RESTORE"
TELL_NS = NS_PER_S
LOOK_NS = 10 * NS_PER_MS  # interval of checks whether a configuration is applied, since no event reports that
WAIT_NS = 10 * NS_PER_S  # maximum wait for the metadata, and for the group of the stream


class Restores:
    """The component of one server that builds streams from archives and adds them to the cluster."""

    def __init__(self, member: MemberNode, keeper: Keeper, tell_leader: Callable[[Restored], None]) -> None:
        self._member = member
        self._keeper = keeper
        self._tell_leader = tell_leader
        self._refused: dict[tuple[Key, int], ApiError] = {}

    # -- the leader of the metadata ------------------------------------------------------------------------------

    def place(self, call: ApiCall) -> Generator[Step, None, int]:
        """Return the number of the server that is to build the stream of a request. Raises ApiError."""
        config = yield from self._checked(call)
        return self._member.requests.field().place(config)[0]

    def _checked(self, call: ApiCall) -> Generator[Step, None, StreamConfig]:
        """Return the checked configuration in a restore request. Raises ApiError."""
        errcodes.BAD_REQUEST.raise_if(is_empty(call.body))
        request = stream_requests.read_restore(call.body, call.args[0], call.js.options.strict)
        errcodes.STREAM_MISMATCH.raise_if(request.config.name != call.args[0])
        return (yield from self._member.requests.check_restored(call.js, request.config))

    def take(self, note: Restored) -> None:
        """Add to the metadata a stream that a server has built from an archive.

        If the metadata refuses the stream, inform that server.
        """
        self._member.turn.go_on(self._take_steps(note))

    def _take_steps(self, note: Restored) -> Generator[Step, None, None]:
        member = self._member
        bounds = member.requests.bounds(note.account, note.stored.config)
        entry = StreamRestored(note.account, note.stored, note.node, note.created_ns, bounds)
        applied = yield from member.propose(entry)
        if applied is None or applied.error is None:
            return
        error, name = applied.error, note.stored.config.name
        found = member.machine.state.stream(note.account, name)
        if found is not None and found.created_ns == note.created_ns:
            return  # the note arrived twice
        refused = Refused(note.account, name, note.created_ns, error.code, error.err_code, error.description)
        if note.node == member.node:
            self.refused(refused)
        else:
            member.tell(note.node, refused)

    # -- the server that builds ----------------------------------------------------------------------------------

    def begin(self, order: Order) -> None:
        """Start a chore that receives an archive and answers the request, if this server knows the account."""
        js = self._member.accounts.get(order.account)
        if js is None:
            return
        from pyjs.jetstream.api.router import ENDPOINT_BY_WORDS, Router  # imported with the first request

        endpoint = ENDPOINT_BY_WORDS[tuple(WORDS.split("."))]
        own = replace(endpoint, handle=self._receive)
        request = Request(
            _nothing, order.subject.encode(), order.reply, b"", order.payload, number=order.number
        )
        self._member.turn.go_on(Router(js.account, js.shared, js).work(request, own, (order.stream,)))

    def _receive(self, call: ApiCall) -> MaybeSteps:
        from pyjs.jetstream.transfer.restore import Restore  # 20 ms: most servers receive no archive

        # The order arrived on another connection than the interest in its reply.
        yield from self._member.waiters.until_heard(call.js.account, call.request.reply)
        config = yield from self._checked(call)
        client = audit.client_of(call.js.account, call.js.shared, call.request)
        single = replace(config, num_replicas=1)
        join = partial(self._join_steps, config)
        out: JsonDict = {"deliver_subject": Restore(call.js, single, client, join).begin()}
        return out

    def _join_steps(self, config: StreamConfig, build: StreamBuild) -> Generator[Step, None, Stream]:
        """Add a complete stream to the cluster; return it when it is open with its whole configuration.

        Raises:
            ApiError: the cluster refuses the stream, or the stream cannot be opened.
        """
        member, key = self._member, Key(build.account, config.name)
        note = Restored(build.account, stored_config(config), member.node, build.created_ns)
        self._keeper.builds[key] = build
        try:
            for _ in range(WAIT_NS // TELL_NS):
                self._tell_leader(note)
                if (yield from member.waiters.until(lambda: self._is_decided(key, note), TELL_NS)):
                    break
            self._check(key, note)
            error: ApiError | None = None
            for _ in range(WAIT_NS // LOOK_NS):
                # a stream that failed to open is removed from the metadata
                error = self._keeper.failures.get(key, error)
                is_over = lambda: self._is_open(key, config) or not self._has(key, note)  # noqa: E731
                if (yield from member.waiters.until(is_over, LOOK_NS)):
                    break
            stream = member.accounts[key.account].streams.get(key.name)
            if stream is None or not self._has(key, note):
                raise error or errcodes.STREAM_RESTORE.error(err="the stream is not open yet")
            return stream
        finally:
            self._keeper.builds.pop(key, None)
            self._refused.pop((key, note.created_ns), None)

    def _has(self, key: Key, note: Restored) -> bool:
        """Return whether the metadata has the stream that was built."""
        found = self._member.machine.state.stream(*key)
        return found is not None and found.created_ns == note.created_ns

    def _is_decided(self, key: Key, note: Restored) -> bool:
        refused = (key, note.created_ns) in self._refused
        return refused or self._member.machine.state.stream(*key) is not None

    def _check(self, key: Key, note: Restored) -> None:
        """Raise ApiError if the metadata has refused the stream, or has no stream or another one of its name."""
        error = self._refused.get((key, note.created_ns))
        if error is not None:
            raise error
        found = self._member.machine.state.stream(*key)
        errcodes.STREAM_RESTORE.raise_if(found is None, err="the cluster has no leader")
        assert found is not None
        errcodes.STREAM_NAME_EXIST_RESTORE_FAILED.raise_if(found.created_ns != note.created_ns)

    def _is_open(self, key: Key, config: StreamConfig) -> bool:
        """Return whether a restored stream is open with all replicas, and led by this server if it has several."""
        js = self._member.accounts[key.account]
        stream, replicated = js.streams.get(key.name), js.shared.replicated
        assigned = self._member.machine.state.stream(*key)
        if assigned is None or assigned.is_built:
            return False  # the stream may be removed
        is_led = config.num_replicas == 1 or (
            stream is not None and replicated is not None and replicated.leads(stream)
        )
        return stream is not None and is_led and stream.config.num_replicas == config.num_replicas

    def refused(self, note: Refused) -> None:
        """Record that the metadata refuses a stream."""
        error = ApiError(note.code, note.err_code, note.description)
        self._refused[Key(note.account, note.stream), note.created_ns] = error
        self._member.waiters.notify()


def _nothing(request: Request) -> None:
    """Do nothing: the request came from another server, so no session of this server has sent it."""
