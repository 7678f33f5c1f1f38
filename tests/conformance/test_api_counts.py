"""Which requests count in `api.total` and `api.errors` of the server: those in accounts with JetStream, on both servers."""

from __future__ import annotations

import json
from pathlib import Path

from tests.conformance.harness.both import needs_peer, of_both
from tests.conformance.harness.process import ServerProcess
from tests.conformance.test_advisories import client

pytestmark = needs_peer
CONFIG = """
accounts {
    A { jetstream: enabled, users: [{user: a, password: a}] }
    B { users: [{user: b, password: a}] }
    SYS { users: [{user: sys, password: a}] }
}
system_account: SYS
jetstream { store_dir: "<<store>>" }
"""
REQUESTS = (b"INFO", b"STREAM.INFO.S", b"STREAM.NAMES", b"NO.SUCH")


def test_requests_of_accounts_without_jetstream_do_not_count(tmp_path: Path) -> None:
    def look(server: ServerProcess) -> list[tuple[int, int]]:
        system = client(server, "sys", b"_INBOX.sys")
        found = []
        for asker in (client(server, "a"), client(server, "b"), system):
            for request in REQUESTS:
                asker.send(b"PUB $JS.API.%b %b.x 0\r\n\r\n" % (request, asker.inbox))
            asker.fence()
            api = json.loads(system.request(b"$SYS.REQ.SERVER.PING.JSZ"))["data"]["api"]
            found.append((api["total"], api["errors"]))
        return found

    peer, ours = of_both(tmp_path, CONFIG, look)
    assert ours == peer == [(3, 1)] * 3
