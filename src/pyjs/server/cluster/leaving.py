"""The departure of this server from a JetStream cluster, without an error for clients that reconnect.

Leaderships are transferred to other servers first, while the clients of this server wait. Then the other servers stop
choosing these clients as members of queue groups. Each client gets the rest of its output and an end of file, and
connects to another server. As soon as the other server knows the client's subscriptions, this server handles the
client's last input, so that answers reach the client there. Messages that arrive here for the client's inboxes are
forwarded to the other server. So no request is lost between two connections.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from pyjs.cluster.interest import Interest
from pyjs.core.session import ClientSession
from pyjs.server.cluster.mailbox import INBOX, Mailbox, Mailboxes
from pyjs.server.connection import Connection
from pyjs.server.failures import log_exception

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable

    from pyjs.core.account import Account
    from pyjs.core.chore import Step
    from pyjs.server.driver import Driver
    from pyjs.server.open_connections import OpenConnections

HAND_OVER_S = 5.0
CALM_S = 0.1  # seconds in which pending requests of clients are answered, if their answers cannot follow them
RETURN_S = 2.5  # seconds in which a client connects to another server
FENCE_S = 0.5  # seconds for messages on the way
# First pause between two looks for a client at another server, doubled up to LOOK_MAX_S. A new subscription there
# ends the pause: until this server removes its own subscription, the client gets each message twice.
LOOK_S = 0.01
LOOK_MAX_S = 0.2


class Leaving:
    """The procedure that moves the clients of a leaving server to other servers of its cluster."""

    def __init__(self, driver: Driver, connections: OpenConnections[Connection]) -> None:
        self._driver = driver
        self._node = driver.node
        self._connections = connections
        self._mailboxes = Mailboxes()
        self._over: asyncio.Event | None = None  # set when all leaderships have moved
        self._is_ending = False
        self._tasks: set[asyncio.Task[None]] = set()
        # by account and subject: clients that are expected to subscribe to it at another server
        self._expected: dict[tuple[str, bytes], set[asyncio.Event]] = {}

    @property
    def _is_needed(self) -> bool:
        """Whether this server is in a JetStream cluster with other servers that can continue."""
        jetstream, cluster = self._node.jetstream, self._node.cluster
        if jetstream is None or jetstream.shared.member is None or cluster is None:
            return False
        return bool(cluster.routes)

    def begin_lame_duck(self, then: Callable[[], None]) -> None:
        """Transfer all leaderships to other servers, then let the clients continue and call `then`.

        If no other server of a JetStream cluster is connected, call `then` at once. If this server stops meanwhile,
        do not call `then`.
        """
        if self._is_needed:
            task = self._driver.loop.create_task(self._begin_lame_duck(then))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        else:
            then()

    async def _begin_lame_duck(self, then: Callable[[], None]) -> None:
        await self._hand_over()
        if not self._is_ending:
            for connection in self._connections:
                connection.park(on=False)
            then()

    def close(self, session: ClientSession) -> None:
        """End the connection of one client; a server that is leaving sends the client no error."""
        if self._over is not None and isinstance(session.link, Connection):
            self._hang_up(session.link)
        else:
            session.close("Server Shutdown")

    async def let_all_go(self) -> None:
        """Transfer all leaderships, if not done yet, and end all client connections.

        Do nothing if no other server of a JetStream cluster is connected. A fault is logged, not raised.
        """
        try:
            await self._let_all_go()
        except Exception as error:
            log_exception(self._node.log, "The clients cannot be handed over", error)

    async def _let_all_go(self) -> None:
        self._is_ending = True
        if self._over is None and not self._is_needed:
            return
        await self._hand_over()
        self._pause()
        await self._withdraw_queues(self._connections)
        others = [each for each in self._connections if not _has_only_inboxes(each)]
        for connection in set(self._connections).difference(others):
            self._hang_up(connection)
        if others:
            await asyncio.sleep(CALM_S)
        for connection in others:
            self._hang_up(connection)
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def _hand_over(self) -> None:
        """Transfer the leaderships to other servers, and wait up to `HAND_OVER_S` for the end of the transfer.

        Only the first call begins the transfer.
        """
        if self._over is None:
            self._over = asyncio.Event()
            assert self._node.cluster is not None
            self._node.cluster.start_lame_duck()
            self._node.turn_state.go_on(self._steps(self._over))
            self._driver.wake()
        try:
            async with asyncio.timeout(HAND_OVER_S):
                await self._over.wait()
        except TimeoutError:
            self._node.log.warn("Not all leaderships of this server could be handed over")

    def _steps(self, over: asyncio.Event) -> Generator[Step, None, None]:
        member = None if self._node.jetstream is None else self._node.jetstream.shared.member
        if member is not None:
            yield from member.leave_steps(self._pause)
        over.set()

    def _pause(self) -> None:
        for connection in self._connections:
            if not connection.has_hung_up:
                connection.park(on=True)

    def _hang_up(self, connection: Connection) -> None:
        task = self._driver.loop.create_task(self._let_go(connection))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _let_go(self, connection: Connection) -> None:
        """Send the remaining output and an end of file; handle the last input when another server has the client."""
        session = getattr(connection, "session", None)  # None: the transport is closed
        if not isinstance(session, ClientSession) or session.closed_reason or connection.has_hung_up:
            return
        try:
            await self._hear_out(connection, session)
        except Exception as error:
            log_exception(self._node.log, f"{session} - Cannot be handed over", error)
            session.close("Server Shutdown")

    async def _hear_out(self, connection: Connection, session: ClientSession) -> None:
        await self._withdraw_queues([connection])
        if session.closed_reason or connection.has_hung_up:
            return
        account = session.account
        wanted = {sub.subject for sub in session.subscriptions.values() if not sub.queue}
        self._mailboxes.cluster = self._node.cluster
        boxes = self._mailboxes.open(account, wanted)
        self._driver.turn_now()
        connection.hang_up()  # or, where that is not possible, closes the session
        try:
            await self._await_return(connection, account, wanted, boxes)
        finally:
            await self._close_boxes(account, boxes)
        connection.hear_out()
        self._driver.wake()

    async def _await_return(
        self, connection: Connection, account: Account, wanted: set[bytes], boxes: list[Mailbox]
    ) -> None:
        """Wait until another server has all subscriptions in `wanted`, but not longer than `RETURN_S` seconds.

        As soon as another server has the subscription to the inbox of a mailbox in `boxes`, this mailbox is closed
        and removed from the list.
        """
        deadline, pause_s, came = self._driver.loop.time() + RETURN_S, LOOK_S, asyncio.Event()
        self._expect(account.name, wanted, came)
        try:
            while (connection.has_more or boxes) and self._driver.loop.time() < deadline:
                if connection.is_over:
                    if self._is_elsewhere(account.name, wanted):
                        break
                    known = [each for each in boxes if self._is_elsewhere(account.name, {each.key[0]})]
                    boxes[:] = [each for each in boxes if each not in known]
                    await self._close_boxes(account, known)
                came.clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout(min(pause_s, RETURN_S)):
                        await came.wait()
                pause_s = min(2 * pause_s, LOOK_MAX_S)
        finally:
            self._expect_no_more(account.name, wanted, came)

    def _expect(self, account: str, subjects: set[bytes], came: asyncio.Event) -> None:
        """Register `came`, which is set when another server has a new subscription to one of `subjects`."""
        cluster = self._node.cluster
        if cluster is not None and cluster.awaited is not None:
            cluster.awaited.on_subscribed = self._subscribed
        for subject in subjects:
            self._expected.setdefault((account, subject), set()).add(came)

    def _expect_no_more(self, account: str, subjects: set[bytes], came: asyncio.Event) -> None:
        for key in ((account, subject) for subject in subjects):
            self._expected[key].discard(came)
            if not self._expected[key]:
                del self._expected[key]

    def _subscribed(self, account: str, subject: bytes) -> None:
        for came in self._expected.get((account, subject), ()):
            came.set()

    async def _close_boxes(self, account: Account, boxes: list[Mailbox]) -> None:
        ended = self._mailboxes.leave(boxes)
        await self._withdraw(account, [each.key for each in ended])
        for box in ended:
            self._node.turn_state.go_on(box.close_steps())
        self._driver.wake()

    async def _withdraw_queues(self, connections: Iterable[Connection]) -> None:
        """Withdraw the queue subscriptions of `connections`, so that other servers do not choose them for messages.

        If a queue group also has members on other connections of this server, other servers continue to send messages
        to the group, and those members get them. Such a member may disconnect during the wait, so this method repeats
        until nothing is left to withdraw.
        """
        is_done = False
        while not is_done:
            keys: dict[Account, list[tuple[bytes, bytes]]] = {}
            for connection in connections:
                session = getattr(connection, "session", None)
                if isinstance(session, ClientSession):
                    found = [(sub.subject, sub.queue) for sub in session.subscriptions.values() if sub.queue]
                    keys.setdefault(session.account, []).extend(found)
            is_done = not any([await self._withdraw(*each) for each in keys.items()])

    async def _withdraw(self, account: Account, keys: list[tuple[bytes, bytes]]) -> bool:
        """Make the other servers stop sending messages for these subscriptions, and wait for messages in transit.

        Return False if there was nothing to do.
        """
        cluster, passed = self._node.cluster, asyncio.Event()
        if (
            cluster is None
            or not isinstance(account.interest, Interest)
            or not account.interest.withdraw(keys)
        ):
            return False
        cluster.fence(passed.set)
        self._driver.wake()
        with suppress(TimeoutError):
            async with asyncio.timeout(FENCE_S):
                await passed.wait()
        return True

    def _is_elsewhere(self, account: str, subjects: set[bytes]) -> bool:
        """Return whether one other server has all these subscriptions; if there is no other server, return True."""
        cluster = self._node.cluster
        if cluster is None or not cluster.routes:
            return True
        for route in cluster.routes.values():
            remote = route.remote.get(account)
            if remote is not None and all((each, b"") in remote.subscriptions for each in subjects):
                return True
        return False


def _has_only_inboxes(connection: Connection) -> bool:
    """Return whether each subscription of the client is to an inbox or belongs to a queue group.

    A Connection without a client session gives False.
    """
    session = getattr(connection, "session", None)
    if not isinstance(session, ClientSession):
        return False
    return all(sub.queue or sub.subject.startswith(INBOX) for sub in session.subscriptions.values())
