"""The subjects of a consumer: for acks, pull requests and flow control.

Acks have two forms of subject: a short one, and one with domain and account. The option `ack_v2` selects the form
that the reply subjects of deliveries have.

Source: ADR-15; subjects probed on nats-server 2.15.1.
"""

from __future__ import annotations

from pyjs.base.nuid import short_hash


class ConsumerSubjects:
    """The subjects of one consumer."""

    __slots__ = ("_domain", "_names", "_shown")

    def __init__(self, account: str, stream: str, consumer: str, domain: str, ack_v2: bool) -> None:
        short = f"{stream}.{consumer}"
        self._domain = domain
        self._names = (short, f"{domain or '_'}.{short_hash(account)}.{short}")
        self._shown = self._names[ack_v2]

    def ack_prefixes(self) -> tuple[bytes, bytes]:
        """Return both prefixes of ack subjects; deliveries use the first one."""
        ordered = sorted(self._names, key=lambda names: names != self._shown)
        return f"$JS.ACK.{ordered[0]}.".encode(), f"$JS.ACK.{ordered[1]}.".encode()

    def acks(self) -> list[bytes]:
        """Return the subjects of all acks."""
        return [f"$JS.ACK.{names}.>".encode() for names in self._names]

    def pulls(self) -> list[bytes]:
        """Return the subjects of pull requests."""
        apis = ("$JS.API", f"$JS.{self._domain}.API") if self._domain else ("$JS.API",)
        return [f"{api}.CONSUMER.MSG.NEXT.{self._names[0]}".encode() for api in apis]

    def flow(self, token: str) -> bytes:
        """Return the subject for the answer to one flow control request.

        If `token` is "*", the result is the subject of all such answers.
        """
        return f"$JS.FC.{self._shown}.{token}".encode()
