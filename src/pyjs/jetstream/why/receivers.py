"""Finds the clients that receive a consumer's messages: subscribers of its deliver subject or of waiting requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pyjs.core.session import ClientSession
from pyjs.jetstream.why.reasons import counted

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from pyjs.core.account import Account

RECEIVERS_MAX = 16  # maximum number of clients that a reason names
SUBJECTS_MAX = 1024  # maximum number of waiting requests whose clients are searched for


class Receivers(NamedTuple):
    """Clients of this server, up to RECEIVERS_MAX, and the number of subscriptions on other servers."""

    sessions: list[ClientSession]
    elsewhere: int

    def rows(self) -> list[dict[str, Any]]:
        """Return the fields that identify each client, as in /connz, and the bytes that wait to be sent to it."""
        return [
            {
                "cid": session.cid,
                **({"name": session.options.name} if session.options.name else {}),
                "ip": session.peer.ip,
                "port": session.peer.port,
                "pending_bytes": session.pending_size(),
            }
            for session in self.sessions
        ]

    def __str__(self) -> str:
        texts = [_named(session) for session in self.sessions]
        if self.elsewhere:
            texts.append(f"{counted(self.elsewhere, 'client')} of other servers")
        return "; ".join(texts) or "none"


def _named(session: ClientSession) -> str:
    where = f"cid {session.cid}, {session.peer.ip}:{session.peer.port}"
    return f'"{session.options.name}" ({where})' if session.options.name else where


def receivers(account: Account, subjects: Iterable[bytes]) -> Receivers:
    """Return the clients that are subscribed to one of `subjects`."""
    found: dict[int, ClientSession] = {}
    elsewhere = 0
    for subject in subjects:
        for sub in account.subs.match(subject):
            if isinstance(sub.sink, ClientSession) and len(found) < RECEIVERS_MAX:
                found.setdefault(sub.sink.cid, sub.sink)
            elsewhere += sub.is_remote
    return Receivers(list(found.values()), elsewhere)
