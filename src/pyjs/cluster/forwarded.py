"""Messages that a server forwards to the subscriptions of one subject at another server.

A client that moves from one server to another misses the messages of the time in between. The former server holds
these messages, and forwards them for the subject of the client's subscription; this subject may have wildcards. Other
subscriptions that match a message do not get it: those that existed when the message was published have received it
already.

    forwarded = lengths account key subject reply headers payload
    lengths   = 5 * u32, little endian: those of account, key, subject, reply and headers
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from typing import TYPE_CHECKING

from pyjs.subjects.tokens import is_valid_subject

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from pyjs.core.account import Account
    from pyjs.subjects.sublist import Subscription

DELIMITERS = b" \t\r\n"
_LENGTHS = Struct("<5I")


@dataclass(frozen=True, slots=True)
class Forwarded:
    """A message that another server must deliver to its plain subscriptions of the subject `key`."""

    account: str
    key: bytes
    subject: bytes
    reply: bytes
    headers: bytes
    payload: bytes


def encode(message: Forwarded) -> list[bytes]:
    """Return a message in parts, to be sent one after the other."""
    parts = (message.account.encode(), message.key, message.subject, message.reply, message.headers)
    return [_LENGTHS.pack(*map(len, parts)), *parts, message.payload]


def decode(data: bytes) -> Forwarded:
    """Return a message from its bytes.

    Raises:
        ValueError: the bytes are not a complete message, or a subject in the message is invalid.
    """
    if len(data) < _LENGTHS.size:
        raise ValueError(f"a forwarded message of {len(data)} bytes")
    at, parts = _LENGTHS.size, []
    for size in _LENGTHS.unpack_from(data):
        parts.append(data[at : at + size])
        at += size
    if at > len(data):
        raise ValueError(f"a forwarded message of {len(data)} bytes that claims {at}")
    account, key, subject, reply, headers = parts
    # PUB accepts subjects such as `a..b`; only those that would break the protocol are refused here
    if not (is_valid_subject(key) and subject) or any(byte in DELIMITERS for byte in subject + reply):
        raise ValueError("a forwarded message with an invalid subject")
    return Forwarded(account.decode("utf-8", "replace"), key, subject, reply, headers, data[at:])


def deliver(accounts: Mapping[str, Account], message: Forwarded) -> None:
    """Deliver a message from another server to the plain subscriptions of its `key`, if there are any."""
    account = accounts.get(message.account)
    if account is None:
        return
    found = account.subs.match(message.subject)
    wanted = [each for each in found if each.subject == message.key and not (each.queue or each.is_remote)]
    if wanted:
        send_only(account, message, wanted)


def send_only(account: Account, message: Forwarded, targets: Collection[Subscription]) -> None:
    """Send a message to `targets` and to no other matching subscription.

    The other subscriptions are marked as closed during the call.
    """
    found = account.subs.match(message.subject)
    others = [each for each in found if not each.closed and each not in targets]
    for each in others:
        each.closed = True
    try:
        account.send(message.subject, message.payload, message.headers, message.reply)
    finally:
        for each in others:
            each.closed = False
