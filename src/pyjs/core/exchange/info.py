"""The header Nats-Request-Info: the sender of a request to a service of another account.

A service always gets the account and the round-trip time of the client. It gets all other fields only if the import
has `share`. Fields and their order follow nats-server 2.15.1 (tests/conformance/scenarios/exchange).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from pyjs.core.auth.identity import client_info

if TYPE_CHECKING:
    from pyjs.core.account import Account
    from pyjs.core.session import ClientSession


NAME = b"Nats-Request-Info:"


class Describer:
    """The source of the header Nats-Request-Info for one service import."""

    def __init__(self, server: str, share: bool, to_system: bool) -> None:
        self._server = server
        self._share = share  # send all fields
        self._to_system = to_system  # the service belongs to the system account, which gets the server name

    def fields(self, session: ClientSession) -> dict[str, object]:
        """Return the fields about the client of `session` that the service may see."""
        every = client_info(session, session.account.name, self._server)
        if self._share:
            return every
        known = ("acc", "rtt", "server") if self._to_system else ("acc", "rtt")
        return {name: every[name] for name in known if name in every}

    def text(self, session: ClientSession) -> bytes:
        """Return the header's value for a request of the client of `session`."""
        return compact(self.fields(session))

    def own_text(self, importer: str) -> bytes:
        """Return the header's value for a message that a stream of the account `importer` sends."""
        every = {"acc": importer, "server": self._server, "kind": "JetStream"}
        known = every if self._share else ("acc", "server") if self._to_system else ("acc",)
        return compact({name: every[name] for name in known})

    def extended(self, before: bytes, importer: Account, add_server: bool) -> bytes:
        """Return the header's value for a request that has passed an earlier import.

        `before` is the value from that import; the field `svc` is set to the name of `importer`.
        """
        try:
            fields = json.loads(before)
        except ValueError:
            fields = {}
        fields = fields if isinstance(fields, dict) else {}
        fields["svc"] = importer.name
        if add_server or self._to_system:
            fields["server"] = self._server
        return compact({name: fields[name] for name in _ORDER if name in fields})


def request_headers(block: bytes, session: object, server: str) -> bytes:
    """Return the header block with a Nats-Request-Info line about the client that owns `session`.

    Such lines from the client itself are removed. No line is added if `session` is not a ClientSession.
    """
    from pyjs.core.session import ClientSession

    lines = [line for line in block.split(b"\r\n") if line and not line.startswith(NAME)] or [b"NATS/1.0"]
    if isinstance(session, ClientSession):
        lines.append(NAME + b" " + Describer(server, share=True, to_system=False).text(session))
    return b"\r\n".join([*lines, b"", b""])


_ORDER = (
    "start host id acc svc user name lang ver rtt server cluster jwt issuer_key name_tag tags kind client_type"
).split()  # order of the fields in the header


def compact(fields: dict[str, object]) -> bytes:
    """Return `fields` as UTF-8 JSON without spaces."""
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogateescape")
