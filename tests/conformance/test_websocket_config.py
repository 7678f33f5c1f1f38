"""This server refuses the `websocket` blocks that nats-server refuses, with the same texts, and no others."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.conformance.harness.both import needs_peer
from tests.conformance.harness.process import ServerFailed, ServerProcess, our_command, peer_command

pytestmark = needs_peer
PORT = "port: -1, no_tls: true"
USERS = "authorization { users: [{user: a, password: b}] }\n"
REFUSED = {
    "neither TLS nor no_tls": ("websocket { port: -1 }", "websocket requires TLS configuration"),
    "a relative origin": (
        f'websocket {{ {PORT}, allowed_origins: ["example.com"] }}',
        "unable to parse allowed origin",
    ),
    "an origin of another kind": (
        f'websocket {{ {PORT}, allowed_origins: ["ftp://example.com"] }}',
        "allowed origins must be absolute URLs with http or https scheme",
    ),
    "an unknown user": (
        f"{USERS}websocket {{ {PORT}, no_auth_user: nobody }}",
        "no_auth_user",
    ),
    "a user beside a list of users": (
        f"{USERS}websocket {{ {PORT}, authorization {{ user: u, password: p }} }}",
        "websocket authentication username not compatible with presence of users/nkeys",
    ),
    "a token beside a list of users": (
        f"{USERS}websocket {{ {PORT}, authorization {{ token: t }} }}",
        "websocket authentication token not compatible with presence of users/nkeys",
    ),
    "a cookie for tokens without operators": (
        f"websocket {{ {PORT}, jwt_cookie: c }}",
        "trusted operators or trusted keys configuration is required for JWT authentication via cookie",
    ),
    "a header of the handshake": (
        f'websocket {{ {PORT}, headers {{ "Sec-WebSocket-Accept": x }} }}',
        "prefix not allowed",
    ),
    "a header of HTTP": (f'websocket {{ {PORT}, headers {{ "Upgrade": x }} }}', "not allowed"),
    "an unknown key": (f"websocket {{ {PORT}, unknown_key: 1 }}", "unknown_key"),
}
ACCEPTED = {
    "a number for handshake_timeout": f"websocket {{ {PORT}, handshake_timeout: 3 }}",
    "an origin with a port": f'websocket {{ {PORT}, allowed_origins: ["https://example.com:8443"] }}',
    "port 0, whatever else it says": 'websocket { port: 0, allowed_origins: ["example.com"] }',
    "a login of its own": f"websocket {{ {PORT}, authorization {{ user: u, password: p }} }}",
    "headers": f'websocket {{ {PORT}, headers {{ "X-Server": nats }} }}',
}


def outcome(directory: Path, name: str, command: list[str] | None, config: str) -> str:
    """Return "" if the server starts, otherwise its error text."""
    assert command is not None
    folder = directory / name
    folder.mkdir()
    server = ServerProcess(command, config, folder, with_http=False)
    try:
        server.start()
    except ServerFailed as failed:
        return str(failed) + (folder / "log").read_text("utf-8", "replace")
    finally:
        server.kill()
    return ""


@pytest.mark.parametrize(("config", "text"), REFUSED.values(), ids=REFUSED)
def test_a_wrong_block_is_refused_by_both_with_one_text(tmp_path: Path, config: str, text: str) -> None:
    assert text in outcome(tmp_path, "peer", peer_command(), config)
    assert text in outcome(tmp_path, "ours", our_command(), config)


@pytest.mark.parametrize("config", ACCEPTED.values(), ids=ACCEPTED)
def test_a_right_block_is_accepted_by_both(tmp_path: Path, config: str) -> None:
    assert outcome(tmp_path, "peer", peer_command(), config) == ""
    assert outcome(tmp_path, "ours", our_command(), config) == ""
