"""The claims of accounts, converted to options."""

from __future__ import annotations

from typing import Any

import pytest

from pyjs.config.exchange.declared import (
    Activation,
    Exchange,
    Latency,
    MapDestination,
    ServiceExport,
    ServiceImport,
    StreamExport,
    StreamImport,
    SubjectMapping,
)
from pyjs.config.options import TraceDest
from pyjs.core.trust.convert import account_token as decoded
from pyjs.testing.jwt import Key, account_token, token

OPERATOR, A, B = Key("operator", b"o" * 32), Key("account", b"a" * 32), Key("account", b"b" * 32)
NOW_S = 1_700_000_000
STREAM, SERVICE = {"subject": "s.*", "type": "stream"}, {"subject": "r.*", "type": "service"}


def exchange(**claims: Any) -> Exchange:
    found = decoded(account_token(OPERATOR, A, "A", issued_at=1, **claims), NOW_S)
    assert found.is_valid
    return found.options.exchange()


@pytest.mark.parametrize(
    ("claimed", "expected"),
    [
        (STREAM, StreamExport("s.*")),
        ({**STREAM, "account_token_position": 2}, StreamExport("s.*", account_token_position=2)),
        (
            {**STREAM, "token_req": True, "revocations": {"*": 5}},
            StreamExport("s.*", activation_required=True, revocations=(("*", 5),)),
        ),
        (SERVICE, ServiceExport("r.*")),
        ({**SERVICE, "response_type": "Chunked"}, ServiceExport("r.*", response_type="Chunked")),
        ({**SERVICE, "response_threshold": 7}, ServiceExport("r.*", response_threshold_ns=7)),
        ({**SERVICE, "allow_trace": True}, ServiceExport("r.*", allow_trace=True)),
        (
            {**SERVICE, "service_latency": {"sampling": "headers", "results": "l"}},
            ServiceExport("r.*", latency=Latency("l", 0)),
        ),
        (
            {**SERVICE, "service_latency": {"sampling": 5, "results": "l"}},
            ServiceExport("r.*", latency=Latency("l", 5)),
        ),
    ],
)
def test_an_export_keeps_its_options(claimed: dict[str, Any], expected: object) -> None:
    assert exchange(exports=[claimed]).exports == (expected,)


@pytest.mark.parametrize(
    ("claimed", "expected"),
    [
        (STREAM, StreamImport(B.public, "s.*")),
        ({**STREAM, "local_subject": "l.$1"}, StreamImport(B.public, "s.*", "l.$1")),
        ({**STREAM, "to": "p"}, StreamImport(B.public, "s.*", "p.s.*")),
        ({**STREAM, "allow_trace": True}, StreamImport(B.public, "s.*", allow_trace=True)),
        (SERVICE, ServiceImport(B.public, "r.*")),
        ({**SERVICE, "local_subject": "l.$1"}, ServiceImport(B.public, "r.*", "l.$1")),
        ({**SERVICE, "to": "there.*"}, ServiceImport(B.public, "there.*", "r.*")),
        ({**SERVICE, "share": True}, ServiceImport(B.public, "r.*", share=True)),
    ],
)
def test_an_import_has_its_subject_there_and_here(claimed: dict[str, Any], expected: object) -> None:
    assert exchange(imports=[{**claimed, "account": B.public}]).imports == (expected,)


def test_an_import_carries_its_activation() -> None:
    given = token(B, "activation", A.public, "", {"subject": "s.*", "kind": "stream"}, 5, exp=9, nbf=7)
    found = exchange(imports=[{**STREAM, "account": B.public, "token": given}]).imports
    assert found[0].activation == Activation(A.public, B.public, "", 5, 7, 9)


@pytest.mark.parametrize(
    ("now_s", "valid"), [(4, False), (5, True), (8, True), (9, False), (10, False)]
)  # fmt: skip
def test_an_activation_is_valid_for_its_time(now_s: int, valid: bool) -> None:
    assert Activation("I", "S", not_before=5, expires=9).is_valid(now_s) is valid


def test_mappings_for_clusters_and_impossible_ones_are_left_out() -> None:
    mappings = {
        "a": [{"subject": "b", "weight": 40}, {"subject": "c", "cluster": "east"}],
        "x.*": [{"subject": "y.$7"}],
    }
    assert exchange(mappings=mappings).mappings == (SubjectMapping("a", (MapDestination("b", 40),)),)


def test_the_destination_of_traces_is_that_of_the_token() -> None:
    claims = {"dest": "traces.here", "sampling": 20}
    found = decoded(account_token(OPERATOR, A, "A", issued_at=1, trace=claims), NOW_S)
    assert found.options.msg_trace == TraceDest("traces.here", 20)


@pytest.mark.parametrize(
    "claims",
    [
        {"trace": {"dest": "a.*"}},
        {"trace": {"dest": "a", "sampling": 101}},
        {"mappings": {"a": [{"subject": "b", "weight": 60}, {"subject": "c", "weight": 60}]}},
        {"mappings": {"a": [{"subject": "b", "weight": 101}]}},
        {"imports": [{**STREAM, "account": B.public, "token": "abc"}]},
    ],
)
def test_invalid_claims_share_nothing(claims: dict[str, Any]) -> None:
    found = decoded(account_token(OPERATOR, A, "A", issued_at=1, exports=[STREAM], **claims), NOW_S)
    assert not found.is_valid
    assert found.options.exchange() == Exchange()
