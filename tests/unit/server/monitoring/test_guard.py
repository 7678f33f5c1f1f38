"""The login of the monitoring port."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import AsyncIterator

import bcrypt
import pytest

from pyjs.aio import Server
from pyjs.config.options import HttpLogin
from pyjs.server.monitoring.guard import KNOWN_MAX, Guard

HASH = bcrypt.hashpw(b"hush", bcrypt.gensalt(4)).decode()


def basic(user: str, password: str) -> bytes:
    return b"Basic " + b64encode(f"{user}:{password}".encode())


async def answer(guard: Guard, target: str, credentials: bytes) -> int:
    """Return the status with which a request is refused; 200: it is not."""
    work = guard.check(target, credentials)
    while True:
        try:
            await next(work)
        except StopIteration as done:
            return 200 if done.value is None else done.value.status


@pytest.fixture(params=["hush", HASH], ids=["plain", "bcrypt"])
async def guard(request: pytest.FixtureRequest) -> AsyncIterator[Guard]:
    login = HttpLogin(user="ops", password=request.param, token=request.param)
    made = Guard(asyncio.get_running_loop(), login, "base")
    yield made
    made.stop()


@pytest.mark.parametrize(
    ("credentials", "status"),
    [
        (b"", 401),
        (basic("ops", "hush"), 200),
        (b"basic" + basic("ops", "hush")[5:], 200),
        (basic("ops", "loud"), 401),
        (basic("ops", "hush\0"), 401),
        (basic("other", "hush"), 401),
        (b"Basic !!!", 401),
        (b"Basic " + b64encode(b"ops"), 401),
        (b"Bearer hush", 200),
        (b"Bearer loud", 401),
        (b"Bearer \xff\xfe", 401),
        (b"Digest hush", 401),
        (b"Bearer", 401),
    ],
)
async def test_only_the_right_credentials_are_let_in(guard: Guard, credentials: bytes, status: int) -> None:
    assert await answer(guard, "/base/varz", credentials) == status
    assert await answer(guard, "/base/varz", credentials) == status


@pytest.mark.parametrize(
    ("target", "status"),
    [
        ("/base/healthz", 200),
        ("/base/healthz?js-enabled=1", 200),
        ("/base/healthz/../varz", 401),
        ("/base//healthz", 401),
        ("/healthz", 401),
        ("/base/varz?/healthz", 401),
    ],
)
async def test_probes_need_no_login(guard: Guard, target: str, status: int) -> None:
    assert await answer(guard, target, b"") == status


async def test_few_credentials_are_remembered(guard: Guard) -> None:
    for number in range(2 * KNOWN_MAX):
        assert await answer(guard, "/base/varz", b"Bearer" + b" " * (number + 1) + b"hush") == 200

    assert len(guard._known) == KNOWN_MAX


async def test_without_a_login_everything_is_answered() -> None:
    assert await answer(Guard(asyncio.get_running_loop(), None, ""), "/varz", b"") == 200


async def test_a_server_refuses_and_asks_for_a_login() -> None:
    async with Server(http_port=-1, http_authorization={"user": "ops", "password": HASH}) as server:
        port = int(server.monitor_url.rpartition(":")[2])

        async def ask(header: bytes) -> bytes:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET /varz HTTP/1.1\r\n%bConnection: close\r\n\r\n" % header)
            found = await reader.read()
            writer.close()
            return found

        refused = await ask(b"")
        assert refused.startswith(b"HTTP/1.1 401 Unauthorized\r\n")
        assert b'WWW-Authenticate: Basic realm="pyjs-server"' in refused
        right = b"authorization: %b\r\n" % basic("ops", "hush")
        assert (await ask(right)).startswith(b"HTTP/1.1 200 OK\r\n")
