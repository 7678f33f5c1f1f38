"""The request of an operator to remove all streams of an account: `$JS.API.ACCOUNT.PURGE.<account>`.

Only the system account offers this request. The answer is sent after all streams were durably removed. An unknown
account and an account without streams get the same answer.

Source: answers, log line and audit probed on nats-server 2.15.1 (tests/conformance/test_system_account.py).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import orjson

from pyjs.base.errors import StoreFailed
from pyjs.jetstream import errcodes
from pyjs.jetstream.api import audit
from pyjs.jetstream.errcodes import ApiError

if TYPE_CHECKING:
    from collections.abc import Generator

    from pyjs.core.account import Account
    from pyjs.core.chore import Step
    from pyjs.core.sink import Request
    from pyjs.jetstream.manage.engine import JetStream
    from pyjs.node import Node

SUBJECT = "$JS.API.ACCOUNT.PURGE.*"
RESPONSE = "io.nats.jetstream.api.v1.account_purge_response"


def purge(node: Node, system: Account, request: Request) -> Generator[Step, None, bytes | None]:
    """Remove all streams of the account named in the subject; return the answer.

    Return None if JetStream is off, or if another server or worker answers.
    """
    server, name = node.jetstream, request.subject.rpartition(b".")[2].decode("utf-8", "replace")
    if server is None:
        return None
    js = server.accounts.get(name)
    names = [] if js is None else [*js.streams, *js.offline]
    known = "true" if name in node.accounts else "false"
    node.log.info(f"Purge request for account {name} (streams: {len(names)}, hasAccount: {known})")
    fields: dict[str, object] = {"initiated": True}
    member = server.shared.member
    try:
        if member is not None:
            purged = yield from member.operators.purge_account(name)
            if purged is None:
                return None
        elif js is not None:
            yield from _delete_all(js, names)
        spread = server.shared.spread
        if spread is not None and not (yield from spread.emptied_steps(name)):
            return None
    except (ApiError, StoreFailed) as error:
        refusal = error if isinstance(error, ApiError) else errcodes.STREAM_DELETE.error(err=error.reason)
        fields = {"error": refusal.as_json()}
    answer = orjson.dumps({"type": RESPONSE} | fields)
    if system.has_interest(audit.SUBJECT):
        audit.send(system, server.shared, request, answer)
    return answer


def _delete_all(js: JetStream, names: list[str]) -> Generator[Step, None, None]:
    """Delete the streams one after another, each with exclusive access through its gate.

    A stream that was deleted in the meantime is skipped.
    """
    from pyjs.jetstream.manage import streams  # cheap: the module was imported with the first stream

    for name in names:
        try:
            yield from js.gates.within(name, True, partial(streams.delete, js, name))
        except ApiError as error:
            if error.err_code != errcodes.STREAM_NOT_FOUND.err_code:  # the stream was deleted in the meantime
                raise
