"""Clients that log in with tokens, and configurations in operator mode for both servers."""

from __future__ import annotations

import json
import socket
from contextlib import closing
from typing import Any

from tests.support.raw import RawClient

from pyjs.testing.jwt import Key, account_token, operator_token, user_token

WAIT_S = 8.0


def attempt(
    port: int, jwt: str = "", key: Key | None = None, more: bytes = b"", **connect: Any
) -> list[object]:
    """Log in, send `more`, and return the server's lines up to PONG or the close."""
    with closing(socket.create_connection(("127.0.0.1", port), WAIT_S)) as sock, sock.makefile("rb") as lines:
        info = json.loads(lines.readline()[5:])
        said: list[object] = [len(info.get("nonce", "")), info.get("auth_required")]
        fields: dict[str, Any] = {"verbose": False, "protocol": 0, **connect}
        if jwt:
            fields["jwt"] = jwt
        if key is not None:
            fields["sig"] = key.sign_nonce(info.get("nonce", ""))
        sock.sendall(b"CONNECT " + json.dumps(fields).encode() + b"\r\n" + more + b"PING\r\n")
        while True:
            line = lines.readline().decode().strip()
            said.append(line)
            if not line or line == "PONG":
                return said


class TokenClient(RawClient):
    """A client that logged in with a token."""

    def __init__(self, port: int, jwt: str, key: Key | None, **connect: Any) -> None:
        self._jwt, self._key, self._connect = jwt, key, connect
        super().__init__(port, connect=b"")

    def send(self, data: bytes) -> None:
        """Send data; the first call also sends the CONNECT with the signature."""
        if self._jwt:
            info = json.loads(self.read_until(b"\r\n")[5:])
            fields: dict[str, Any] = {"verbose": False, "headers": True, "no_responders": True, "protocol": 1}
            fields |= {"jwt": self._jwt, **self._connect}
            if self._key is not None:
                fields["sig"] = self._key.sign_nonce(info["nonce"])
            self._jwt = ""
            data = b"CONNECT " + json.dumps(fields).encode() + b"\r\n" + data
        super().send(data)

    def until_closed(self) -> list[str]:
        """Return the lines of the server until it closes, except INFO and PING, which may come at any time."""
        while True:
            try:
                self._more()
            except ConnectionError:
                rest = self._data[self._at :]
                lines = rest.decode().split("\r\n")
                return [line for line in lines if line and not line.startswith(("INFO", "PING"))]


class World:
    """One operator with its accounts; a test creates their tokens."""

    def __init__(self) -> None:
        self.operator, self.system, self.admin = Key("operator"), Key("account"), Key("user")
        self.preload: dict[str, str] = {}
        self.add(self.system, "SYS")

    def add(self, account: Key, name: str = "", **given: Any) -> str:
        """Make the token of an account, which the configuration contains."""
        self.preload[account.public] = account_token(self.operator, account, name, **given)
        return self.preload[account.public]

    def config(self, more: str = "", **nats: Any) -> str:
        """Return the configuration of a server; it contains all tokens made so far."""
        operator = operator_token(self.operator, system_account=self.system.public, **nats)
        tokens = "\n".join(f"{name}: {token}" for name, token in self.preload.items())
        return f"operator: {operator}\nresolver: MEMORY\nresolver_preload {{\n{tokens}\n}}\n{more}\n"

    def admin_client(self, port: int) -> TokenClient:
        """Return a client of the system account."""
        return TokenClient(port, user_token(self.system, self.admin, "admin"), self.admin)
