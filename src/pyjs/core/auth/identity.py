"""The description of a client in advisories, events and log lines: its own fields of CONNECT, and its address.

Source: fields and their order probed on nats-server 2.15.1 (tests/conformance/test_system_events.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyjs.base.gotext import quoted, time_text

if TYPE_CHECKING:
    from pyjs.core.session import ClientSession


def user_name(session: ClientSession) -> str:
    """Return the name with which the client logged in, or "[REDACTED]" if it used an authentication token.

    Without a name and a token, return "".
    """
    options, user = session.options, session.user
    token = None if user is None else user.token
    shown = options.nkey or options.user or ("" if token is None else token.subject)
    return shown or ("[REDACTED]" if options.auth_token else "")


def client_info(session: ClientSession, account: str, server: str) -> dict[str, object]:
    """Return the fields that describe a client, without fields that the client did not send.

    The fields include the client's JWT, which may be enough to log in; use `public_client_info` for untrusted
    readers.
    """
    options = session.options
    said = {"user": user_name(session), "name": options.name, "lang": options.lang, "ver": options.version}
    fields: dict[str, object] = {
        "start": time_text(session.started_at_ns),
        "host": session.peer.ip,
        "id": session.cid,
        "acc": account,
        **{key: value for key, value in said.items() if value},
    }
    if session.rtt_ns:
        fields["rtt"] = session.rtt_ns
    fields["server"] = server
    token = None if session.user is None else session.user.token
    if token is not None:
        of_token = {
            "jwt": token.text,
            "issuer_key": token.issuer,
            "name_tag": token.name,
            "tags": [*token.tags],
        }
        fields |= {key: value for key, value in of_token.items() if value}
    kind = session.peer.kind if session.peer.kind != "in_process" else "nats"
    return fields | {"kind": "Client", "client_type": kind}


def public_client_info(session: ClientSession, account: str, server: str) -> dict[str, object]:
    """Return the fields of `client_info` without the JWT, for advisories that every user of the account may read."""
    fields = client_info(session, account, server)
    fields.pop("jwt", None)
    return fields


@dataclass(frozen=True, slots=True, eq=False)
class Sender:
    """A client of another worker that has sent a request."""

    fields: dict[str, object]  # as public_client_info


def log_label(session: ClientSession) -> str:
    """Return the description of a logged-in client in log lines: library, name, account and user."""
    options, account = session.options, session.account
    said = (options.version and f"v{options.version}", options.lang, options.name)
    program, user = ":".join(filter(None, said)), _user_label(session)
    place = account.name if account.tag in ("", account.name) else f"{account.name}/{account.tag}"
    parts = (program, f"{place}/{user}" if user else "")
    return "".join(f" - {quoted(part)}" for part in parts if part)


def _user_label(session: ClientSession) -> str:
    options, user = session.options, session.user
    token = None if user is None else user.token
    if options.nkey:
        return f"nkey:{options.nkey}"
    if options.user:
        return f"user:{options.user}"
    if token is not None:
        return f"jwt:{token.subject}"
    if options.auth_token:
        return "token"
    if user is None or not user.name:
        return ""
    return f"nkey:{user.name}" if user.nkey else f"user:{user.name}"
