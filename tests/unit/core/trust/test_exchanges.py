"""Imports between accounts that are defined by tokens, on a node with a virtual clock."""

from __future__ import annotations

import json
from typing import Any

from pyjs.core.exchange.responses import Responses
from pyjs.core.trust.convert import account_token as decoded
from pyjs.testing import RawClient, VirtualNode
from pyjs.testing.jwt import Key, account_token, token, user_token

OPERATOR = Key("operator", b"o" * 32)
A, B, C, USER = (Key(kind, bytes([at]) * 32) for at, kind in enumerate(["account"] * 3 + ["user"]))
START_S = 1_700_000_000  # the start of the virtual clock
STREAM = {"subject": "s.>", "type": "stream"}
SERVICE = {"subject": "help", "type": "service"}


def node(**accounts: dict[str, Any]) -> VirtualNode:
    """Return a node with accounts of these names and claims."""
    preload = {
        key.public: account_token(OPERATOR, key, name, issued_at=1, **accounts.get(name, {}))
        for name, key in (("A", A), ("B", B), ("C", C))
    }
    return VirtualNode(trusted_keys=OPERATOR.public, resolver="MEMORY", resolver_preload=preload)


def log_in(fixture: VirtualNode, account: Key) -> RawClient:
    jwt = user_token(account, USER, "alice", issued_at=1, bearer_token=True)
    client = fixture.client(json.dumps({"jwt": jwt, "headers": True, "verbose": False}).encode())
    client.take()
    return client


def change(fixture: VirtualNode, account: Key, name: str, **claims: Any) -> None:
    trust = fixture.node.trust
    assert trust is not None
    text = account_token(OPERATOR, account, name, issued_at=2, **claims)
    trust.apply(account.public, decoded(text, START_S))


def imported(each: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {**each, "account": A.public, **more}


def sees(fixture: VirtualNode, client: RawClient) -> bool:
    """Return whether a client receives messages that account A publishes."""
    fixture.node.accounts[A.public].send(b"s.one", b"x")
    fixture.turn()
    return b"MSG s.one" in client.take()


def test_the_exporting_account_is_fetched_before_a_client_is_let_in() -> None:
    with node(A={"exports": [STREAM]}, B={"imports": [imported(STREAM)]}) as fixture:
        client = log_in(fixture, B)
        client.send(b"SUB s.> 1\r\n")
        assert sees(fixture, client)


def test_a_client_waits_for_accounts_that_are_far_away() -> None:
    far = {**STREAM, "account": C.public}
    with node(C={"exports": [STREAM]}, A={"imports": [far]}, B={"imports": [imported(STREAM)]}) as fixture:
        fixture.hold_jobs = True
        client = fixture.client(
            json.dumps({"jwt": user_token(B, USER, issued_at=1, bearer_token=True)}).encode()
        )
        fixture.turn()
        assert client.take() == b""
        fixture.hold_jobs = False
        fixture.turn()
        assert fixture.node.trust is not None
        assert [*fixture.node.trust.accounts] == [B.public, A.public, C.public]


def test_an_import_ends_with_its_activation() -> None:
    given = token(A, "activation", B.public, "", {"subject": "s.>", "kind": "stream"}, 1, exp=START_S + 60)
    exports = [{**STREAM, "token_req": True}]
    with node(A={"exports": exports}, B={"imports": [imported(STREAM, token=given)]}) as fixture:
        client = log_in(fixture, B)
        client.send(b"SUB s.> 1\r\n")
        assert sees(fixture, client)
        fixture.advance(seconds=61)
        assert not sees(fixture, client)


def test_a_pending_request_is_answered_after_another_token_of_its_exporter() -> None:
    with node(A={"exports": [SERVICE]}, B={"imports": [imported(SERVICE)]}) as fixture:
        service, client = log_in(fixture, A), log_in(fixture, B)
        service.send(b"SUB help 1\r\n")
        client.send(b"SUB in 1\r\nPUB help in 1\r\nx\r\n")
        reply = service.take().split()[3]
        change(fixture, A, "A", exports=[SERVICE], description="changed")
        service.send(b"PUB %b 2\r\nok\r\n" % reply)
        assert b"MSG in 1 2\r\nok" in client.take()


def test_exports_that_are_gone_are_forgotten() -> None:
    with node(A={"exports": [SERVICE]}, B={"imports": [imported(SERVICE)]}) as fixture:
        log_in(fixture, B)
        for at in range(5):
            change(fixture, A, "A", exports=[{**SERVICE, "response_threshold": at + 1}])
        responses = fixture.node.accounts[A.public].responses
        assert isinstance(responses, Responses)
        assert len(responses.exports) == 1


def test_very_many_imports_are_checked_over_several_turns() -> None:
    exports = [{"subject": f"s.{at}", "type": "stream"} for at in range(500)]
    with node(B={"imports": [imported(STREAM)]}) as fixture:
        client = log_in(fixture, B)
        change(fixture, A, "A", exports=exports)
        change(fixture, B, "B", imports=[imported(each) for each in exports])
        assert len(fixture.node.exchanges[B.public].imports) < 500
        client.send(b"SUB s.> 1\r\n")
        fixture.turn()
        assert len(fixture.node.exchanges[B.public].imports) == 500
        fixture.node.accounts[A.public].send(b"s.499", b"x")
        fixture.turn()
        assert b"MSG s.499" in client.take()


def test_too_many_declarations_make_a_token_invalid() -> None:
    exports = [{"subject": f"s.{at}", "type": "stream"} for at in range(2049)]
    found = decoded(account_token(OPERATOR, A, "A", issued_at=1, exports=exports), START_S)
    assert not found.is_valid
    assert found.options.exports == ()
