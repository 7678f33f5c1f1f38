"""A service that decides about logins: a thread that answers the requests of an authorization callout."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Callable
from typing import Any

from tests.support.raw import RawClient

from pyjs.base.rng import SeededRng
from pyjs.testing.jwt import NO_LIMITS, Key, token
from pyjs.wire.xkeys import CurveKeyPair

SUBJECT = b"$SYS.REQ.USER.AUTH"
Decide = Callable[["Asked"], bytes]


class Asked:
    """One request, decoded."""

    def __init__(self, text: str, headers: bytes) -> None:
        body = text.split(".")[1]
        self.claims: dict[str, Any] = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
        self.nats: dict[str, Any] = self.claims["nats"]
        self.headers = headers
        self.user: str = self.nats["user_nkey"]
        self.server: str = self.nats["server_id"]["id"]

    def user_token(self, signer: Key, name: str = "", audience: str = "", **nats: Any) -> str:
        """Return the token of the user that the request is about."""
        claims: dict[str, Any] = {"aud": audience} if audience else {}
        return token(signer, "user", self.user, name, {**NO_LIMITS, **nats}, **claims)

    def answer(self, signer: Key, jwt: str = "", error: str = "", **given: Any) -> bytes:
        """Return an answer to the request."""
        nats = {name: value for name, value in (("jwt", jwt), ("error", error)) if value}
        nats |= {name: given[name] for name in ("issuer_account",) if name in given}
        subject = given.get("subject", self.user)
        made = token(signer, "authorization_response", subject, nats=nats, aud=given.get("aud", self.server))
        return made.encode()


class CalloutService:
    """Answers each request with the result of `decide`; `requests` are those that arrived."""

    def __init__(
        self,
        client: RawClient,
        decide: Decide,
        xkey: CurveKeyPair | None = None,
        encrypts: bool = True,
    ) -> None:
        self.requests: list[Asked] = []
        self.faults: list[Exception] = []
        self._client, self._decide, self._xkey, self._encrypts = client, decide, xkey, encrypts
        client.send(b"SUB %b 99\r\n" % SUBJECT)
        client.fence()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop the service."""
        self._client.hang_up()
        self._thread.join(5)

    def _work(self) -> None:
        try:
            for subject, reply, headers, payload in self._client.frames():
                if subject == SUBJECT:
                    self._answer(reply, headers, payload)
        except (ConnectionError, OSError):
            pass
        except Exception as error:
            self.faults.append(error)

    def _answer(self, reply: bytes, headers: bytes, payload: bytes) -> None:
        server_xkey = ""
        if self._xkey is not None:
            server_xkey = headers.decode().split("Nats-Server-Xkey: ")[1].split("\r\n")[0]
            payload = self._xkey.open(payload, server_xkey)
        asked = Asked(payload.decode(), headers)
        self.requests.append(asked)
        answer = self._decide(asked)
        if self._xkey is not None and self._encrypts and answer:
            answer = self._xkey.seal(answer, server_xkey, SeededRng(7))
        self._client.send(b"PUB %b %d\r\n%b\r\n" % (reply, len(answer), answer))
