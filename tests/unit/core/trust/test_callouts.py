"""Requests to the service that decides about clients, as work of a turn."""

from __future__ import annotations

from pathlib import Path

from pyjs.core.trust.callouts import ASK_WORK
from pyjs.testing import VirtualNode
from pyjs.testing.jwt import Key

INPUT_WORK = 65536  # of a turn, see core/sink.pyx
CONFIG = (
    "accounts { AUTH { users: [{user: auth, password: a}] } }\n"
    f"authorization {{ auth_callout {{ issuer: {Key('account').public}, account: AUTH, auth_users: [auth] }} }}\n"
)


def test_the_work_of_a_request_counts_as_input_of_the_turn(tmp_path: Path) -> None:
    path = tmp_path / "server.conf"
    path.write_text(CONFIG)
    with VirtualNode(path) as node:
        service = node.client(b'{"verbose":false,"user":"auth","pass":"a"}')
        service.send(b"SUB $SYS.REQ.USER.AUTH 1\r\n")
        strangers = [node.client(None) for _ in range(100)]
        for stranger in strangers:
            stranger.session.receive_data(b'CONNECT {"user":"u","pass":"x"}\r\n')
        asked = []
        while sum(asked) < 100:
            node.node.turn(node.clock.now_ns())
            asked.append(len(service.frames()))
        assert max(asked) <= 2 * (INPUT_WORK // ASK_WORK + 1)  # those read before the turn, and those in it
        assert min(asked) > 0
