"""The server gets account tokens from an account server over HTTP, like nats-server."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.conformance.harness.both import needs_peer, of_both
from tests.conformance.harness.process import ServerProcess
from tests.support.exchange import AccountClient
from tests.support.jwt_clients import World, attempt

from pyjs.testing.jwt import Key, operator_token, user_token

pytestmark = needs_peer
WORLD = World()
A, B, MISSING, BROKEN, SLOW = (Key("account") for _ in range(5))
USER = Key("user")
SLOW_ASKED, SLOW_RELEASED, SLOW_ANSWERED = (threading.Event() for _ in range(3))
WORLD.add(A, "A", exports=[{"subject": "s.>", "type": "stream"}])
WORLD.add(SLOW, "SLOW")
WORLD.add(B, "B", imports=[{"subject": "s.>", "type": "stream", "account": A.public}])


@contextmanager
def account_server() -> Iterator[tuple[str, list[str]]]:
    """Serve the tokens; yield the URL and the list of requested accounts."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            name = self.path.rpartition("/")[2]
            text = "abc" if name == BROKEN.public else WORLD.preload.get(name, "")
            if name:
                asked.append(name)
            if name == SLOW.public:
                SLOW_ASKED.set()
                SLOW_RELEASED.wait(1.5)  # a login waits for two seconds
                SLOW_ANSWERED.set()
            self.send_response(200 if text or not name else 404)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text.encode())

        def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/jwt/v1/accounts/", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_logins_and_imports_with_an_account_server(tmp_path: Path) -> None:
    with account_server() as (url, asked):

        def look(server: ServerProcess) -> Any:
            asked.clear()
            jwts = {key: user_token(key, USER, "u", bearer_token=True) for key in (A, B, MISSING, BROKEN)}
            fields: dict[str, Any] = {"user": None, "pass": None}
            b = AccountClient(server.port, "b", jwt=jwts[B], **fields)
            b.do(b"SUB s.> 71")
            a = AccountClient(server.port, "a", jwt=jwts[A], **fields)
            a.do(b"PUB s.one 1\r\n1")
            refused = [attempt(server.port, jwts[key], USER)[-2:] for key in (MISSING, BROKEN)]
            return b.seen(), refused, asked.count(A.public), asked.count(B.public)

        operator = operator_token(WORLD.operator, system_account=WORLD.system.public)
        peer, ours = of_both(tmp_path, f'operator: {operator}\nresolver: URL("{url}")\n', look)
    assert ours == peer
    assert ours[0] == "MSG s.one 71 n\r\n1\r\n"


def test_an_account_that_comes_slowly_does_not_delay_the_others(tmp_path: Path) -> None:
    with account_server() as (url, _):

        def look(server: ServerProcess) -> Any:
            for event in (SLOW_ASKED, SLOW_RELEASED, SLOW_ANSWERED):
                event.clear()
            said: dict[Key, object] = {}

            def log_in(key: Key) -> None:
                jwt = user_token(key, USER, "u", bearer_token=True)
                said[key] = attempt(server.port, jwt, USER)[-1]

            slow = threading.Thread(target=log_in, args=(SLOW,))
            slow.start()
            assert SLOW_ASKED.wait(10)
            log_in(A)
            was_delayed = SLOW_ANSWERED.is_set()
            SLOW_RELEASED.set()
            slow.join()
            return said[A], was_delayed, said[SLOW]

        operator = operator_token(WORLD.operator, system_account=WORLD.system.public)
        peer, ours = of_both(tmp_path, f'operator: {operator}\nresolver: URL("{url}")\n', look)
    assert ours == peer == ("PONG", False, "PONG")
