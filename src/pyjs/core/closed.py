"""Closed connections, for monitoring; the data of their sessions are stored without the buffers."""

from __future__ import annotations

import marshal
from collections import deque
from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from pyjs.core.auth.handshake import ConnectOptions
from pyjs.core.link import Peer, Shown, ShownCertificate, TlsPeer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyjs.core.account import Account
    from pyjs.core.auth.users import User
    from pyjs.core.session import ClientSession

    Owners = tuple[tuple[Account, User | None], ...]
    Row = tuple[Any, ...]  # of values that marshal writes

SHOWN_MAX = 256  # remembered subscriptions of a closed connection
PACKED = 64  # rows in one piece
OWNERS_KEPT = 8  # if a piece has more owners, the next piece starts without them


class ClosedSubscription(NamedTuple):
    """The attributes of a Subscription at the end of its session, with the same names, but without a sink."""

    subject: bytes
    queue: bytes
    sid: bytes
    delivered: int
    max: int


class ClosedSession(NamedTuple):
    """The attributes of a ClientSession at its end, with the same names."""

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

    @property
    def subscriptions(self) -> dict[bytes, ClosedSubscription]:
        """The first SHOWN_MAX subscriptions of the session, by sid."""
        return {sub.sid: sub for sub in self.shown}

    def pending_size(self) -> int:
        """Return 0: no output waits for a closed connection."""
        return 0


class _Piece(NamedTuple):
    """Up to PACKED rows as bytes, and the accounts and users to which the rows refer."""

    rows: bytes
    owners: Owners


class ClosedSessions:
    """The last `most` ended sessions, as rows, oldest first; all except the newest are packed into pieces.

    If the rows were not packed, their objects would occupy parts of the memory pages of freed sessions, and these
    pages could not be returned to the system.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._pieces: deque[_Piece] = deque()
        self._newest: list[Row] = []  # fewer than PACKED rows
        self._owners: Owners = ()  # (account, user) pairs of the newest rows
        self._numbers: dict[tuple[int, int], int] = {}  # index in `_owners`, by the ids of account and user

    def add(self, session: ClientSession) -> None:
        """Store a session that ended; the oldest sessions beyond the limit are dropped."""
        self._newest.append(_row(session, self._number_of(session.account, session.user)))
        if len(self._newest) == PACKED:
            self._pieces.append(_Piece(marshal.dumps(self._newest), self._owners))
            self._newest = []
            if len(self._owners) > OWNERS_KEPT:  # each client may have a different user
                self._owners, self._numbers = (), {}
        if self._surplus() >= PACKED:
            self._pieces.popleft()

    def _number_of(self, account: Account, user: User | None) -> int:
        """Return the index of the pair (account, user) in `_owners`; add the pair if it is new."""
        key = id(account), id(user)
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self._owners)
            self._owners = (*self._owners, (account, user))
        return number

    def _surplus(self) -> int:
        return PACKED * len(self._pieces) + len(self._newest) - self._most

    def __len__(self) -> int:
        return self._most + min(self._surplus(), 0)

    def __iter__(self) -> Iterator[ClosedSession]:
        for some in self.parts():
            yield from some

    def __getitem__(self, at: int) -> ClosedSession:
        """Return the session at index `at`. Slow, since it unpacks all sessions; use `parts` to visit many."""
        return list(self)[at]

    def parts(self) -> Iterator[list[ClosedSession]]:
        """Return an iterator over lists of several sessions each, which together contain all stored sessions."""
        newest = _Piece(marshal.dumps(self._newest), self._owners)
        return _parts((*self._pieces, newest), max(self._surplus(), 0))


def _parts(pieces: tuple[_Piece, ...], surplus: int) -> Iterator[list[ClosedSession]]:
    for piece in pieces:
        # marshal is safe here: this process wrote `rows`.
        yield [_session(row, *piece.owners[row[0]]) for row in marshal.loads(piece.rows)[surplus:]]
        surplus = 0


def _row(session: ClientSession, owner: int) -> Row:
    peer, options = session.peer, session.options
    return (
        owner,
        (peer.ip, peer.port, peer.kind, peer.proxy),
        (options.name, options.lang, options.version),  # the fields that monitoring shows
        _tls_row(session.link.tls),
        plain_values(session),
        [shown_values(sub) for sub in islice(session.subscriptions.values(), SHOWN_MAX)],
    )


def _session(row: Row, account: Account, user: User | None) -> ClosedSession:
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
    """Return the fields of `tls` for monitoring, without the names in the client's certificate."""
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
plain_values, shown_values = attrgetter(*PLAIN), attrgetter(*ClosedSubscription._fields)
