"""A client that keeps a TLS stream busy without sending protocol bytes loses its connection, on both servers."""

from __future__ import annotations

import socket
from contextlib import closing
from pathlib import Path

from tests.conformance.harness.both import needs_peer, of_both
from tests.conformance.harness.process import ServerProcess
from tests.conformance.harness.websocket import WAIT_S
from tests.support.certificates import COMMON, LOCAL, Authority, subject
from tests.support.key_updates import UpdatingClient

pytestmark = needs_peer
UPDATES = 5_000


def test_key_updates_without_end_are_not_answered_without_end(tmp_path: Path) -> None:
    """Each KeyUpdate costs the server as much time as many messages, and requires no login."""
    authority = Authority(tmp_path)
    issued = authority.issue("server", subject(("localhost", COMMON)), *LOCAL)
    config = f'tls {{ cert_file: "{issued.cert_file}", key_file: "{issued.key_file}", timeout: 20 }}'

    def look(server: ServerProcess) -> tuple[bool, bool]:
        client = UpdatingClient(authority.ca_file, tmp_path / f"keys{server.port}")
        with closing(socket.create_connection(("127.0.0.1", server.port), WAIT_S)) as line:
            while line.recv(1) != b"\n":
                pass  # INFO
            while not client.step():
                line.sendall(client.outgoing.read())
                client.incoming.write(line.recv(65536))
            line.sendall(client.outgoing.read())
            return is_closed(line, client.key_updates(2), 0.5), is_closed(
                line, client.key_updates(UPDATES)[54:]
            )

    peer, ours = of_both(tmp_path, config, look)
    assert ours == peer == (False, True)


def is_closed(line: socket.socket, records: bytes, within_s: float = 60) -> bool:
    """Return whether the server closes the connection after `records`."""
    line.settimeout(within_s)
    try:
        line.sendall(records)
        while line.recv(65536):
            pass
    except TimeoutError:
        return False
    except ConnectionError:
        return True
    return True
