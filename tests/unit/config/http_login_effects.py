"""The keys of `http_authorization`, tested by the statuses of requests with and without credentials."""

from __future__ import annotations

import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Callable

from tests.unit.config.effects import KEY, Effect
from tests.unit.config.process_effects import LOCAL, WAIT_S, Running

BASIC = "Basic " + b64encode(b"me:hush").decode()
BEARER = "Bearer hush"


ACTION = {"Content-Type": "application/json", "X-Pyjs-Action": "replay"}


def status(
    path: str, credentials: str = "", body: bytes | None = None, more: dict[str, str] | None = None
) -> Callable[[Running], object]:
    """Observe the status of a request; with a body, it is a POST."""

    def observe(running: Running) -> object:
        port = running.address("Starting http monitor").rpartition(":")[2]
        headers = {"Authorization": credentials} if credentials else {}
        url = f"http://127.0.0.1:{port}{path}"
        request = urllib.request.Request(url, body, headers | (more or {}))
        try:
            with urllib.request.urlopen(request, timeout=WAIT_S) as reply:
                return reply.status
        except urllib.error.HTTPError as refused:
            return refused.code

    return observe


def login(key: str, beside: str, observe: Callable[[Running], object], without: str = "") -> Effect:
    """Return the experiment for a key of the block."""
    return Effect(f"{LOCAL}\nhttp_port: -1\nhttp_authorization {{ {beside}\n{KEY}\n}}", key, observe, without)


HTTP_LOGIN_EFFECTS = {
    "http_authorization": [
        Effect(f"{LOCAL}\nhttp_port: -1\n{KEY}", "http_authorization { token: hush }", status("/varz"))
    ],
    "http_authorization/user": [login("user: me", "password: hush", status("/varz", BASIC), "user: other")],
    "http_authorization/password": [
        login("password: hush", "user: me", status("/varz", BASIC), "password: other")
    ],
    "http_authorization/token": [login("token: hush", "", status("/varz", BEARER), "token: other")],
    "http_authorization/healthz_open": [login("healthz_open: false", "token: hush", status("/healthz"))],
    "http_authorization/messages": [
        login("messages: true", "token: hush", status("/dashboard/data/messages?acc=$G&stream=S", BEARER))
    ],
    "http_authorization/replay": [
        login("replay: true", "token: hush", status("/dashboard/actions/replay", BEARER, b"{}", ACTION))
    ],
}
