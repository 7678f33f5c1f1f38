"""Requests of operators about a JetStream cluster: move the leadership of the metadata group, remove a lost server.

Only the system account offers these requests. Every server receives them; the leader of the metadata group answers.

Source: subjects and answers of nats-server 2.15.1 (tests/conformance/test_cluster_jetstream.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

from pyjs.jetstream.api import audit
from pyjs.jetstream.errcodes import ApiError

if TYPE_CHECKING:
    from collections.abc import Generator

    from pyjs.core.account import Account
    from pyjs.core.chore import Step
    from pyjs.core.sink import Request
    from pyjs.node import Node

STEP_DOWN = "$JS.API.META.LEADER.STEPDOWN"
REMOVE_SERVER = "$JS.API.SERVER.REMOVE"
EVACUATE_SERVER = "$JS.API.SERVER.EVACUATE"
ACCEPT_LOSS = "$JS.API.SERVER.ACCEPT_LOSS"  # nats-server has no such request; the named server answers
CANCEL_MOVE = "$JS.API.ACCOUNT.STREAM.CANCEL_MOVE.*.*"
RESPONSES = {
    CANCEL_MOVE: "stream_cancel_move_response",
    STEP_DOWN: "meta_leader_stepdown_response",
    REMOVE_SERVER: "meta_server_remove_response",
    EVACUATE_SERVER: "meta_server_evacuate_response",
    ACCEPT_LOSS: "meta_server_accept_loss_response",
}


def ask(node: Node, system: Account, request: Request) -> Generator[Step, None, bytes | None]:
    """Carry out a request and return the answer, or None if this server does not answer."""
    server, subject = node.jetstream, request.subject.decode()
    member = None if server is None else server.shared.member
    if server is None or member is None:
        return None
    operators = member.operators
    account, name = subject.split(".")[-2:]  # used only if the subject ends with them
    if subject not in RESPONSES:
        subject = CANCEL_MOVE
    handlers = {
        CANCEL_MOVE: lambda _: operators.cancel_move(account, name),
        STEP_DOWN: operators.step_down,
        REMOVE_SERVER: operators.remove_server,
        EVACUATE_SERVER: operators.evacuate_server,
        ACCEPT_LOSS: operators.accept_loss,
    }
    try:
        fields = yield from handlers[subject](request.payload)
    except ApiError as error:
        fields = {"error": error.as_json()}
    if fields is None:
        return None
    answer = orjson.dumps({"type": f"io.nats.jetstream.api.v1.{RESPONSES[subject]}"} | fields)
    if system.has_interest(audit.SUBJECT):
        audit.send(system, server.shared, request, answer)
    return answer
