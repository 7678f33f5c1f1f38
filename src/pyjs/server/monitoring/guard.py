"""The login of the monitoring port: HTTP Basic with user and password, or a bearer token.

A password or token in the configuration may be a bcrypt hash. One thread checks such hashes one after another, each
in about 50 ms, so a flood of wrong logins delays only other logins. Correct credentials are remembered as keyed
hashes in memory.

Source: RFC 7617, RFC 6750; nats-server has no login for this port (nats-server #1466).
"""

from __future__ import annotations

import hmac
import secrets
from base64 import b64decode
from binascii import Error as BadBase64
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import bcrypt

from pyjs.monitor.response import TEXT_HEADERS, Response
from pyjs.monitor.router import split_target

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Generator

    from pyjs.config.options import HttpLogin

HASHED = "$2"  # prefix of a bcrypt hash
PASSWORD_MAX = 72  # number of bytes that bcrypt reads
KNOWN_MAX = 16  # maximum number of remembered credentials
REALM = "pyjs-server"
UNAUTHORIZED = Response(
    401,
    b"401 Unauthorized\n",
    (*TEXT_HEADERS, ("WWW-Authenticate", f'Basic realm="{REALM}", charset="UTF-8"')),
)


class Guard:
    """The authentication of requests to the monitoring port."""

    def __init__(self, loop: asyncio.AbstractEventLoop, login: HttpLogin | None, base_path: str) -> None:
        self._loop = loop
        self._login = login
        base = base_path.strip("/")
        self._base = f"/{base}" if base else ""
        self._key = secrets.token_bytes(32)
        self._known: dict[bytes, None] = {}  # keyed hashes of credentials that were correct
        self._thread: ThreadPoolExecutor | None = None

    def check(
        self, target: str, authorization: bytes
    ) -> Generator[asyncio.Future[bool], None, Response | None]:
        """Return the response that refuses a request, or None if the request may be answered.

        `authorization` is the value of the Authorization header. The generator yields a future if it must wait for
        the check of a bcrypt hash.
        """
        if self._login is None or (self._login.healthz_open and self._is_health(target)):
            return None
        scheme, _, rest = authorization.partition(b" ")
        given = self._given(scheme.lower(), rest.strip())
        if given is None:
            return UNAUTHORIZED
        mark = hmac.digest(self._key, authorization, "sha256")
        if mark in self._known:
            return None
        is_right = yield from self._matches(*given)
        if not is_right:
            return UNAUTHORIZED
        while len(self._known) >= KNOWN_MAX:
            del self._known[next(iter(self._known))]
        self._known[mark] = None
        return None

    def _is_health(self, target: str) -> bool:
        path, _ = split_target(target, self._base)
        return path == "/healthz"

    def _given(self, scheme: bytes, rest: bytes) -> tuple[str, bytes] | None:
        """Return the expected and the given secret; None if the credentials cannot be correct."""
        login = self._login
        assert login is not None
        if scheme == b"bearer" and login.token:
            return login.token, rest
        if scheme != b"basic" or not login.user:
            return None
        try:
            user, separator, password = b64decode(rest, validate=True).partition(b":")
        except BadBase64:
            return None
        is_user = hmac.compare_digest(user, login.user.encode())
        return (login.password, password) if separator and is_user else None

    def _matches(self, expected: str, given: bytes) -> Generator[asyncio.Future[bool], None, bool]:
        if not expected.startswith(HASHED):
            return hmac.compare_digest(expected.encode(), given)
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "monitoring-login")
        future = self._loop.run_in_executor(self._thread, _is_hash_of, expected, given[:PASSWORD_MAX])
        yield future
        return future.result()

    def stop(self) -> None:
        """Stop the thread that checks bcrypt hashes, and cancel the checks that wait for it."""
        if self._thread is not None:
            self._thread.shutdown(wait=False, cancel_futures=True)


def _is_hash_of(expected: str, given: bytes) -> bool:
    try:
        return bcrypt.checkpw(given, expected.encode())
    except ValueError:
        return False  # a hash that bcrypt cannot read, or NUL in the password
