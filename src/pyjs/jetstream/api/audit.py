"""The audit of the API: one advisory for each answer, with the client, the request and the response.

A request is audited only if the advisory has a subscriber. The response in the advisory is the text that was sent.

Source: nats.docs "JetStream advisories"; fields probed on nats-server 2.15.1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyjs.core.account import Account
from pyjs.core.auth.identity import Sender, public_client_info
from pyjs.core.session import ClientSession
from pyjs.core.sink import Request
from pyjs.jetstream import advisories

if TYPE_CHECKING:
    from pyjs.jetstream.api.endpoint import JsonDict
    from pyjs.jetstream.manage.engine import Shared

SUBJECT = b"$JS.EVENT.ADVISORY.API"


def send(account: Account, shared: Shared, request: Request, response: bytes) -> None:
    """Publish the audit advisory of one request and its response."""
    fields: JsonDict = {"server": shared.server_name}
    client = client_of(account, shared, request)
    if client is not None:
        fields["client"] = client
    fields["subject"] = _plain(request.subject.decode("utf-8", "replace"), shared.options.domain)
    if request.payload:
        fields["request"] = request.payload.decode("utf-8", "replace")
    fields["response"] = response.decode()
    now_ns = shared.clock.wall_ns()
    advisories.publish(
        account, shared.rng, SUBJECT, "advisory.v1.api_audit", now_ns, fields, shared.options.domain
    )


def client_of(account: Account, shared: Shared, request: Request) -> JsonDict | None:
    """Return the fields that describe the client of a request, or None if the server itself sent it."""
    if isinstance(request.session, ClientSession):
        return public_client_info(request.session, account.name, shared.server_name)
    return request.session.fields if isinstance(request.session, Sender) else None


def _plain(subject: str, domain: str) -> str:
    """Return `subject` without the domain in its prefix."""
    prefix = f"$JS.{domain}.API."
    return "$JS.API." + subject[len(prefix) :] if domain and subject.startswith(prefix) else subject
