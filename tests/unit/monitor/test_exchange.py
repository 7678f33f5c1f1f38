"""The exports and imports of an account in /accountz."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.monitor.conftest import Site

from pyjs.config.exchange.declared import Exchange, ServiceExport, StreamExport, SubjectMapping
from pyjs.config.load import load_options
from pyjs.monitor.exchange import exchange_fields
from pyjs.testing.jwt import Key

B = Key("account", b"b" * 32).public
PLAIN = {"invalid": False, "share": False, "tracking": False}


def site(own: str = "", other: str = "", more: str = "system_account: SYS") -> Site:
    text = f"accounts {{ A {{ {own} }}\nB {{ {other} }}\nSYS {{}} }}\n{more}"
    return Site(load_options("server.conf", lambda path: text, {}, {}))


def shown(own: str = "", other: str = "", name: str = "A") -> dict[str, Any]:
    """Return the fields of an account on the page, without its imports from the system account."""
    fields: dict[str, Any] = exchange_fields(site(own, other).node, name)
    fields["imports"] = fields["imports"][4:]
    return fields


def test_an_account_imports_requests_about_itself_from_the_system_account() -> None:
    fields: Any = exchange_fields(site().node, "A")
    assert [*fields] == ["imports"]
    assert [(each["local_subject"], each["subject"], each["share"]) for each in fields["imports"]] == [
        ("$SYS.REQ.ACCOUNT.PING.CONNZ", "$SYS.REQ.ACCOUNT.A.CONNZ", False),
        ("$SYS.REQ.SERVER.PING.CONNZ", "$SYS.REQ.ACCOUNT.A.CONNZ", False),
        ("$SYS.REQ.ACCOUNT.PING.STATZ", "$SYS.REQ.ACCOUNT.A.STATZ", False),
        ("$SYS.REQ.USER.INFO", "$SYS.REQ.USER.A.INFO", True),
    ]
    assert {
        (each["account"], each["type"], each["to"] == each["local_subject"]) for each in fields["imports"]
    } == {("SYS", "service", True)}


def test_the_system_account_imports_nothing_from_itself() -> None:
    assert exchange_fields(site().node, "SYS") == {}


def test_without_a_system_account_there_are_no_such_imports() -> None:
    assert exchange_fields(site(more="no_system_account: true").node, "A") == {}


@pytest.mark.parametrize(
    ("declared", "expected"),
    [
        ("{stream: s}", {"subject": "s", "type": "stream"}),
        ("{service: s}", {"subject": "s", "type": "service", "response_type": "Singleton"}),
        (
            "{service: s, response_type: stream}",
            {"subject": "s", "type": "service", "response_type": "Streamed"},
        ),
        (
            "{service: s, response_type: chunked}",
            {"subject": "s", "type": "service", "response_type": "Chunked"},
        ),
        ("{stream: s, accounts: [B]}", {"subject": "s", "type": "stream", "approved_accounts": ["B"]}),
        (
            "{service: s, latency: {sampling: 25%, subject: l}}",
            {
                "subject": "s",
                "type": "service",
                "response_type": "Singleton",
                "service_latency": {"sampling": 25, "results": "l"},
            },
        ),
        (
            "{service: s, latency: {sampling: headers, subject: l}}",
            {
                "subject": "s",
                "type": "service",
                "response_type": "Singleton",
                "service_latency": {"sampling": "headers", "results": "l"},
            },
        ),
    ],
)
def test_an_export_is_shown(declared: str, expected: dict[str, Any]) -> None:
    assert shown(f"exports: [{declared}]")["exports"] == [expected]


def test_a_private_export_shows_its_rule_and_its_revocations_by_time() -> None:
    made = site()
    export = StreamExport("s", activation_required=True, revocations=((B, 5),))
    made.node.exchanges["A"] = Exchange((export, ServiceExport("t")))
    fields: Any = exchange_fields(made.node, "A")
    assert fields["exports"][0] == {
        "subject": "s",
        "type": "stream",
        "token_req": True,
        "revoked_activations": {B: "1970-01-01T00:00:05Z"},
    }
    assert "token_req" not in fields["exports"][1]


@pytest.mark.parametrize(
    ("declared", "exported", "expected"),
    [
        (
            "{stream: {account: B, subject: s}}",
            "{stream: s}",
            {"subject": "s", "account": "B", "local_subject": "s", "type": "stream", **PLAIN},
        ),
        (
            "{stream: {account: B, subject: s}, prefix: p}",
            "{stream: s}",
            {"subject": "s", "account": "B", "local_subject": "p.s", "type": "stream", **PLAIN},
        ),
        (
            '{service: {account: B, subject: "s.*"}, to: "l.$1", share: true}',
            '{service: "s.*"}',
            {
                "subject": "s.*",
                "account": "B",
                "to": "l.*",
                "local_subject": "l.*",
                "type": "service",
                **PLAIN,
                "share": True,
            },
        ),
        (
            "{service: {account: B, subject: s}}",
            "{service: s, latency: {sampling: 100%, subject: l}}",
            {
                "subject": "s",
                "account": "B",
                "to": "s",
                "local_subject": "s",
                "type": "service",
                **PLAIN,
                "latency": {"sampling": 100, "results": "l"},
            },
        ),
    ],
)
def test_an_import_is_shown(declared: str, exported: str, expected: dict[str, Any]) -> None:
    assert shown(f"imports: [{declared}]", f"exports: [{exported}]")["imports"] == [expected]


def test_the_destinations_of_a_mapping_have_running_sums() -> None:
    found = shown("mappings: {a: [{destination: b, weight: 70%}, {destination: c, weight: 20%}]}")["mappings"]
    assert found == {
        "a": [
            {"subject": "a", "weight": 10},
            {"subject": "c", "weight": 30},
            {"subject": "b", "weight": 100},
        ]
    }
    assert [*found] == [SubjectMapping("a", ()).source]
