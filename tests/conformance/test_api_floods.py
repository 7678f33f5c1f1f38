"""API requests beyond `request_queue_limit`: both servers report them, and go on answering other requests.

The requests themselves are dropped by nats-server and refused by this server; see docs/compatibility.md.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.conformance.harness.both import needs_peer, of_both
from tests.conformance.harness.process import ServerProcess
from tests.conformance.test_advisories import client, told

pytestmark = needs_peer
LIMIT_REACHED = b"$JS.EVENT.ADVISORY.API.LIMIT_REACHED"
CONFIG = """
server_name: one
jetstream { store_dir: "<<store>>", domain: hub, request_queue_limit: 1, info_queue_limit: 100 }
accounts {
    A { jetstream: enabled, users: [{user: a, password: a}] }
    $SYS { users: [{user: s, password: a}] }
}
"""


def test_the_limit_of_waiting_requests_is_reported_to_the_system_account(tmp_path: Path) -> None:
    def look(server: ServerProcess) -> Any:
        system, asker = client(server, "s"), client(server, "a")
        told(system, b"SUB %b 9\r\n" % LIMIT_REACHED)
        told(asker, b"SUB %b 9\r\n" % LIMIT_REACHED)
        asker.send(b"PUB $JS.API.STREAM.PURGE.S 0\r\n\r\n" * 50)
        event = json.loads(system.read_until(b"}\r\n").split(b"\r\n")[-1] + b"}")
        assert event.pop("dropped") >= 1
        shown = {name: event[name] for name in ("type", "server", "domain")}
        asker.send(b"SUB i 2\r\nPUB $JS.API.STREAM.INFO.S i 0\r\n\r\n")
        return shown, sorted(event), b"stream_info_response" in asker.read_until(b"}\r\n")

    peer, ours = of_both(tmp_path, CONFIG, look)
    assert ours == peer
    assert ours[0] == {
        "type": "io.nats.jetstream.advisory.v1.api_limit_reached",
        "server": "one",
        "domain": "hub",
    }
