"""The clients that receive a consumer's messages: through its deliver subject, or as the answers to their requests.

A client may ask through an import about a stream of another account. The report for such a client shows no receivers,
since they are clients of the other account.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pyjs.core.session import ClientSession
from pyjs.jetstream.why.reasons import counted

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from pyjs.core.account import Account
    from pyjs.jetstream.consumer.consumer import Consumer
    from pyjs.subjects.sublist import Subscription

RECEIVERS_MAX = 16  # maximum number of clients that a reason names
REQUESTS_MAX = 64  # maximum number of waiting requests whose clients are looked up
MATCHES_MAX = 1_000  # maximum number of subscriptions that are compared, in about half a millisecond


class Receivers(NamedTuple):
    """Clients of this server, up to RECEIVERS_MAX, and the number of subscriptions on other servers."""

    sessions: list[ClientSession]
    elsewhere: int
    is_shown: bool

    def fields(self, name: str) -> dict[str, Any]:
        """Return the field `name` of a reason: a list of the clients as /connz shows them, with their pending bytes.

        Return {} if clients must not be shown.
        """
        if not self.is_shown:
            return {}
        return {
            name: [
                {
                    "cid": session.cid,
                    **({"name": session.options.name} if session.options.name else {}),
                    "ip": session.peer.ip,
                    "port": session.peer.port,
                    "pending_bytes": session.pending_size(),
                }
                for session in self.sessions
            ]
        }

    def __str__(self) -> str:
        texts = [_named(session) for session in self.sessions]
        if self.elsewhere:
            texts.append(f"{counted(self.elsewhere, 'client')} of other servers")
        if not self.is_shown and texts:
            return "not shown to other accounts"
        return "; ".join(texts) or "none in this account"


def _named(session: ClientSession) -> str:
    where = f"cid {session.cid}, {session.peer.ip}:{session.peer.port}"
    return f'"{session.options.name}" ({where})' if session.options.name else where


def receivers(account: Account, subjects: Iterable[bytes], *, is_shown: bool) -> Receivers:
    """Return the clients whose subscriptions match one of `subjects` most closely.

    A subscription to `>`, for example of a monitor, does not count if a more specific one exists. Only the first
    MATCHES_MAX matching subscriptions are examined.
    """
    found: dict[int, ClientSession] = {}
    elsewhere, left = 0, MATCHES_MAX
    for subject in subjects:
        matching = account.subs.match(subject)[:left] if left else []
        left -= len(matching)
        for sub in _closest(matching):
            if isinstance(sub.sink, ClientSession) and len(found) < RECEIVERS_MAX:
                found.setdefault(sub.sink.cid, sub.sink)
            elsewhere += sub.is_remote
    return Receivers(list(found.values()), elsewhere, is_shown)


def _closest(subs: list[Subscription]) -> list[Subscription]:
    """Return the subscriptions with the most literal tokens."""
    literal = [sum(token not in (b"*", b">") for token in sub.subject.split(b".")) for sub in subs]
    most = max(literal, default=0)
    return [sub for sub, count in zip(subs, literal, strict=True) if count == most]


def holders_of(consumer: Consumer, *, is_shown: bool) -> Receivers:
    """Return the clients that currently receive the messages of a consumer."""
    if consumer.push is not None:
        return receivers(consumer.account, [consumer.push.subject], is_shown=is_shown)
    assert consumer.requests is not None
    return receivers(consumer.account, consumer.requests.queue.first_replies(REQUESTS_MAX), is_shown=is_shown)
