"""Closed connections for monitoring: counters of their sessions, without their buffers."""

from __future__ import annotations

import marshal
from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from pyjs.core.auth.handshake import ConnectOptions
from pyjs.core.link import Peer, Shown, ShownCertificate, TlsPeer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyjs.core.account import Account
    from pyjs.core.auth.users import User
    from pyjs.core.session import ClientSession
    from pyjs.subjects.sublist import Subscription

    Owners = tuple[tuple[Account, User | None], ...]

SHOWN_MAX = 256  # remembered subscriptions of a closed connection
PACKED = 64  # sessions in one piece


class ClosedSubscription(NamedTuple):
    """The attributes of a Subscription when its session ended, with the same names but without the session."""

    subject: bytes
    queue: bytes
    sid: bytes
    delivered: int
    max: int

    @classmethod
    def of(cls, sub: Subscription, before: ClosedSubscription | None = None) -> ClosedSubscription:
        """Return a copy of `sub` for monitoring; equal values are shared with `before`."""
        subject = before.subject if before is not None and before.subject == sub.subject else sub.subject
        sid = before.sid if before is not None and before.sid == sub.sid else sub.sid
        return cls(subject, sub.queue, sid, sub.delivered, sub.max)


class ClosedSession(NamedTuple):
    """The attributes of a ClientSession when it ended, with the same names."""

    cid: int
    peer: Peer
    account: Account
    user: User | None
    options: ConnectOptions
    started_at_ns: int
    last_activity_ns: int
    closed_at_ns: int
    closed_reason: str
    rtt_ns: int
    in_msgs: int
    in_bytes: int
    out_msgs: int
    out_bytes: int
    stalls: int
    num_subscriptions: int
    tls: TlsPeer | None
    shown: tuple[ClosedSubscription, ...]  # the first SHOWN_MAX subscriptions

    @classmethod
    def of(cls, session: ClientSession, before: ClosedSession | None = None) -> ClosedSession:
        """Return a copy of `session` for monitoring; equal values are shared with `before`."""
        values = {name: getattr(session, name) for name in cls._fields if name not in ("shown", "tls")}
        values["tls"] = session.link.tls
        first = before.shown[0] if before is not None and before.shown else None
        subs = islice(session.subscriptions.values(), SHOWN_MAX)
        values["shown"] = tuple(ClosedSubscription.of(sub, first) for sub in subs)
        if before is not None:
            if before.options == session.options:
                values["options"] = before.options
            if before.peer.ip == session.peer.ip:
                peer = session.peer
                values["peer"] = Peer(before.peer.ip, peer.port, peer.kind, proxy=peer.proxy)
        return cls(**values)

    @property
    def subscriptions(self) -> dict[bytes, ClosedSubscription]:
        """Return the subscriptions by sid, as a session has them."""
        return {sub.sid: sub for sub in self.shown}

    def pending_size(self) -> int:
        """Return 0: nothing waits for a closed connection."""
        return 0


class _Piece(NamedTuple):
    """PACKED closed sessions as bytes, with their accounts and users, which cannot be packed."""

    rows: bytes
    owners: Owners


class ClosedSessions:
    """The last `most` sessions that ended, oldest first; all but the newest are packed into pieces.

    Unpacked objects would be allocated in the memory of the freed sessions and keep its pages in use: 70 of the 85 MB
    for 9,000 clients stayed allocated after they had left.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._pieces: deque[_Piece] = deque()
        self._newest: list[ClosedSession] = []  # less than PACKED
        self._last: ClosedSession | None = None

    def add(self, session: ClientSession) -> None:
        """Store a session that ended."""
        self._last = ClosedSession.of(session, self._last)
        self._newest.append(self._last)
        if len(self._newest) == PACKED:
            self._pieces.append(_pack(self._newest, self._pieces[-1].owners if self._pieces else ()))
            self._newest = []
        if self._surplus() >= PACKED:
            self._pieces.popleft()

    def _surplus(self) -> int:
        return PACKED * len(self._pieces) + len(self._newest) - self._most

    def __len__(self) -> int:
        return self._most + min(self._surplus(), 0)

    def __iter__(self) -> Iterator[ClosedSession]:
        for some in self.parts():
            yield from some

    def __getitem__(self, at: int) -> ClosedSession:
        """Return one session. This is slow, since it unpacks all of them; use `parts` to visit many."""
        return list(self)[at]

    def parts(self) -> Iterator[list[ClosedSession]]:
        """Return an iterator over all stored sessions, some at a time."""
        return _parts(tuple(self._pieces), list(self._newest), max(self._surplus(), 0))


def _parts(
    pieces: tuple[_Piece, ...], newest: list[ClosedSession], surplus: int
) -> Iterator[list[ClosedSession]]:
    for piece in pieces:
        yield _unpack(piece)[surplus:]
        surplus = 0
    yield newest[surplus:]


def _pack(sessions: list[ClosedSession], known: Owners) -> _Piece:
    """Pack sessions into a piece; reuse the tuple `known` of the previous piece if it has all accounts and users."""
    owners = {_key(each.account, each.user): (each.account, each.user) for each in sessions}
    numbers = {_key(*owner): number for number, owner in enumerate(known)}
    if not owners.keys() <= numbers.keys():
        known = tuple(owners.values())
        numbers = {key: number for number, key in enumerate(owners)}
    return _Piece(
        marshal.dumps([_row(each, numbers[_key(each.account, each.user)]) for each in sessions]), known
    )


def _key(account: Account, user: User | None) -> tuple[int, int]:
    return id(account), id(user)


def _unpack(piece: _Piece) -> list[ClosedSession]:
    # `rows` was written by this process.
    return [_session(row, *piece.owners[row[0]]) for row in marshal.loads(piece.rows)]


def _row(closed: ClosedSession, owner: int) -> tuple[Any, ...]:
    peer, options = closed.peer, closed.options
    return (
        owner,
        (peer.ip, peer.port, peer.kind, peer.proxy),
        (options.name, options.lang, options.version),  # the fields that monitoring shows
        _tls_row(closed.tls),
        tuple(getattr(closed, name) for name in PLAIN),
        [(sub.subject, sub.queue, sub.sid, sub.delivered, sub.max) for sub in closed.shown],
    )


def _session(row: tuple[Any, ...], account: Account, user: User | None) -> ClosedSession:
    _, (ip, port, kind, proxy), (name, lang, version), tls, plain, shown = row
    return ClosedSession(
        peer=Peer(ip, port, kind, proxy=proxy),
        account=account,
        user=user,
        options=ConnectOptions(name=name, lang=lang, version=version),
        tls=_tls(tls),
        shown=tuple(ClosedSubscription(*sub) for sub in shown),
        **dict(zip(PLAIN, plain, strict=True)),
    )


def _tls_row(tls: TlsPeer | None) -> tuple[Any, ...]:
    """Return the fields of `tls` for monitoring, without the names of the client."""
    if tls is None:
        return ()
    chain = [(each.subject, each.spki_sha256, each.cert_sha256) for each in tls.shown.chain]
    return (tls.version, tls.cipher_suite, tls.first, chain)


def _tls(row: tuple[Any, ...]) -> TlsPeer | None:
    if not row:
        return None
    version, cipher_suite, first, chain = row
    return TlsPeer(version, cipher_suite, first, Shown(tuple(ShownCertificate(*each) for each in chain)))


PLAIN = tuple(
    name
    for name in ClosedSession._fields
    if name not in ("peer", "account", "user", "options", "tls", "shown")
)
