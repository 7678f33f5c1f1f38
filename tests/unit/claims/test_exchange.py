"""Exports, imports and mappings in tokens: how they are read, and the text of each error."""

from __future__ import annotations

from typing import Any

import pytest

from pyjs.claims.exchange import (
    COMPARED_MAX,
    DECLARED_MAX,
    Export,
    Import,
    MappedTo,
    activation_of,
    export_issues,
    import_issues,
    mapping_issues,
    read_exports,
    read_imports,
    read_mappings,
)
from pyjs.claims.fields import Issue
from pyjs.claims.token import TokenFault, decode
from pyjs.testing.jwt import Key, token, user_token

A, B, C, SIGNER = (Key("account", bytes([at]) * 32) for at in range(4))


def texts(issues: list[Issue]) -> list[str]:
    assert all(issue.blocking for issue in issues)
    return [issue.description for issue in issues]


# -- reading -----------------------------------------------------------------------------------------------------
def test_an_export_is_read() -> None:
    given = {
        "subject": "s.*",
        "type": "service",
        "name": "n",
        "token_req": True,
        "revocations": {"*": 5},
        "response_type": "Stream",
        "response_threshold": 7,
        "service_latency": {"sampling": 25, "results": "l"},
        "account_token_position": 2,
        "advertise": True,
        "allow_trace": True,
    }
    expected = Export("s.*", "service", "n", True, (("*", 5),), "Stream", 7, (25, "l"), 2, True, True)
    assert read_exports({"exports": [given]}) == (expected,)


@pytest.mark.parametrize(("sampling", "percent"), [("headers", 0), ("HEADERS", 0), (100, 100), (None, 0)])
def test_a_service_is_measured_by_share_or_by_headers(sampling: Any, percent: int) -> None:
    given = {"type": "service", "service_latency": {"sampling": sampling, "results": "l"}}
    assert read_exports({"exports": [given]})[0].latency == (percent, "l")


def test_an_import_is_read() -> None:
    given = {
        "subject": "s",
        "account": B.public,
        "type": "stream",
        "name": "n",
        "token": "t",
        "to": "p",
        "local_subject": "l",
        "share": True,
        "allow_trace": True,
    }
    expected = Import("s", B.public, "stream", "n", "t", "p", "l", True, True)
    assert read_imports({"imports": [given]}) == (expected,)


def test_a_destination_without_a_weight_gets_everything() -> None:
    given = {"a": [{"subject": "b"}, {"subject": "c", "weight": 5, "cluster": "east"}]}
    assert read_mappings({"mappings": given}) == {"a": (MappedTo("b"), MappedTo("c", 5, "east"))}


def test_nothing_declared_is_nothing() -> None:
    assert (read_exports({}), read_imports({"imports": None}), read_mappings({})) == ((), (), {})


@pytest.mark.parametrize(
    "fields",
    [
        {"exports": {}},
        {"exports": [1]},
        {"exports": [{"type": "queue"}]},
        {"exports": [{"subject": 1}]},
        {"exports": [{"token_req": "yes"}]},
        {"exports": [{"revocations": {"*": "x"}}]},
        {"exports": [{"response_threshold": 1 << 63}]},
        {"exports": [{"service_latency": 5}]},
        {"exports": [{"service_latency": {"sampling": "often"}}]},
        {"imports": [{"type": ""}]},
        {"imports": [{"share": 1}]},
        {"mappings": []},
        {"mappings": {"a": {}}},
        {"mappings": {"a": [{"weight": True}]}},
    ],
)
def test_a_claim_of_the_wrong_type_is_a_fault_of_the_token(fields: dict[str, Any]) -> None:
    with pytest.raises(TokenFault):
        read_exports(fields), read_imports(fields), read_mappings(fields)


# -- faults of exports -------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("export", "faults"),
    [
        (Export("a", "stream"), []),
        (Export("a", ""), ['invalid export type: "unknown"']),
        (Export("", "stream"), ["subject cannot be empty"]),
        (Export("a b", "stream"), ['subject "a b" cannot have spaces']),
        (Export(".a", "stream"), ['subject ".a" cannot start or end with a `.`']),
        (Export("a..b", "stream"), ['subject "a..b" cannot contain consecutive `.`']),
        (
            Export("a", "service", response_type="Many"),
            ['invalid response type for service: "Many"'],
        ),
        (
            Export("a", "stream", response_type="Stream"),
            ['invalid response type for stream: "Stream"'],
        ),
        (Export("a", "stream", allow_trace=True), ["AllowTrace only valid for service export"]),
        (
            Export("a", "service", response_threshold_ns=-1),
            ["negative response threshold is invalid"],
        ),
        (
            Export("a", "stream", response_threshold_ns=1),
            ["response threshold only valid for services"],
        ),
        (Export("a", "service", latency=(100, "l")), []),
        (Export("a", "stream", latency=(1, "l")), ["latency tracking only permitted for services"]),
        (
            Export("a", "service", latency=(101, "l")),
            ["sampling percentage needs to be between 1-100"],
        ),
        (Export("a", "service", latency=(-1, "l")), ["sampling percentage needs to be between 1-100"]),
        (Export("a", "service", latency=(1, "")), ["subject cannot be empty"]),
        (
            Export("a", "service", latency=(1, "l.>")),
            ["results subject can not contain wildcards"],
        ),
        (Export("a.*", "stream", account_token_position=2), []),
        (Export("a", "stream", account_token_position=-1), []),
        (
            Export("a", "stream", account_token_position=1),
            ["Account Token Position can only be used with wildcard subjects: a"],
        ),
        (
            Export("a.*", "stream", account_token_position=3),
            ["Account Token Position 3 exceeds length of subject 'a.*'"],
        ),
        (
            Export("a.*", "stream", account_token_position=1),
            ["Account Token Position 1 matches 'a' but must match a * in: a.*"],
        ),
    ],
)
def test_an_export_has_the_faults_that_nats_server_names(export: Export, faults: list[str]) -> None:
    assert texts(export_issues((export,))) == faults


def test_exports_of_one_kind_may_not_cover_each_other() -> None:
    declared = Export("a.*", "stream"), Export("a.b", "stream"), Export("a.b", "service")
    assert texts(export_issues(declared)) == ['stream export subject "a.*" already exports "a.b"']


def test_of_very_many_exports_only_equal_ones_are_named() -> None:
    many = [Export(f"a.{at}", "service") for at in range(COMPARED_MAX)]
    assert texts(export_issues((*many, Export("a.>", "service")))) == []
    twice = 'service export subject "a.7" already exports "a.7"'
    assert texts(export_issues((*many, Export("a.7", "service")))) == [twice]


# -- faults of imports -------------------------------------------------------------------------------------------
def imported(subject: str = "s", kind: str = "stream", account: str = B.public, **more: Any) -> Import:
    return Import(subject, account, kind, **more)


@pytest.mark.parametrize(
    ("given", "faults"),
    [
        (imported(), []),
        (imported(kind=""), ['invalid import type: "unknown"']),
        (imported(account=""), ["account to import from is not specified"]),
        (imported(""), ["subject cannot be empty"]),
        (
            imported(kind="service", allow_trace=True),
            ["AllowTrace only valid for stream import"],
        ),
        (
            imported(share=True),
            ['sharing information (for latency tracking) is only valid for services: "s"'],
        ),
        (imported("s.*", local_subject="l.$1"), []),
        (
            imported("s.*", local_subject="l.$2"),
            [
                'Reference $2 in "l.$2" reference * in "s.*" that do not exist',
                "subject does not contain enough * or reference wildcards $[0-9]",
            ],
        ),
        (
            imported("s.>", local_subject="l"),
            ["both, renaming subject and subject, need to end or not end in >"],
        ),
    ],
)
def test_an_import_has_the_faults_that_nats_server_names(given: Import, faults: list[str]) -> None:
    assert texts(import_issues((given,), A.public)) == faults


def test_the_old_name_of_the_local_subject_is_a_warning() -> None:
    (issue,) = import_issues((imported(to="p"),), A.public)
    assert not issue.blocking
    assert "deprecated" in issue.description
    both = import_issues((imported(to="p", local_subject="l"),), A.public)
    assert [each.description for each in both if each.blocking] == ["Local Subject replaces To"]


def test_services_of_one_account_may_not_have_overlapping_subjects_here() -> None:
    first = imported("a.*", "service", local_subject="l.$1")
    second = imported("b", "service", local_subject="l.x")
    (fault,) = texts(import_issues((first, second), A.public))
    assert fault == f'overlapping subject namespace for "l.x" and "l.*" in same account "{B.public}"'
    elsewhere = imported("b", "service", account=C.public, local_subject="l.x")
    assert import_issues((first, elsewhere), A.public) == []
    assert import_issues((imported("a.*"), imported("a.b")), A.public) == []


# -- activations -------------------------------------------------------------------------------------------------
def activation(
    signer: Key = B, importer: Key = A, subject: str = "s.>", kind: str = "stream", **more: Any
) -> str:
    return token(signer, "activation", importer.public, "", {"subject": subject, "kind": kind, **more}, 5)


@pytest.mark.parametrize(
    "given", [activation(), activation(subject="s.x"), activation(SIGNER, issuer_account=B.public)]
)
def test_an_activation_of_the_exporter_or_of_its_signing_key_is_taken(given: str) -> None:
    assert import_issues((imported("s.x", token=given),), A.public) == []


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        ("abc", 'import "s.x" contains an invalid activation token'),
        (user_token(B, Key("user")), 'import "s.x" contains an invalid activation token'),
        (activation(C), 'activation token doesn\'t match account for import "s.x"'),
        (
            activation(importer=C),
            'activation token doesn\'t match account it is being included in, "s.x"',
        ),
        (
            activation(kind="service"),
            "mismatch between token import type service and type of import stream",
        ),
        (activation(subject="t"), 'activation token import subject "t" doesn\'t match import "s.x"'),
    ],
)
def test_an_activation_for_something_else_is_named(given: str, fault: str) -> None:
    assert texts(import_issues((imported("s.x", token=given),), A.public)) == [fault]


def test_the_account_of_an_activation_must_be_one() -> None:
    given = activation(issuer_account="X")
    assert "account_id is not an account public key" in texts(
        import_issues((imported("s.x", token=given),), A.public)
    )


def test_an_activation_names_the_exporting_account() -> None:
    assert activation_of(decode(activation())).account == B.public
    assert activation_of(decode(activation(SIGNER, issuer_account=B.public))).account == B.public
    with pytest.raises(TokenFault, match="not activation claim"):
        activation_of(decode(user_token(B, Key("user"))))


# -- faults of mappings ------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("destinations", "faults"),
    [
        ((MappedTo("b", 40), MappedTo("c", 60)), []),
        ((MappedTo("b", 40), MappedTo("c", 61)), ["all"]),
        ((MappedTo("b", 101),), ["one", "all"]),
        ((MappedTo("b", 100), MappedTo("c", 100, "east")), []),
        ((MappedTo("b", 60, "east"), MappedTo("c", 60, "east")), ["east"]),
        ((MappedTo("", 1),), ["subject cannot be empty"]),
    ],
)
def test_the_weights_of_a_mapping_are_100_at_most(
    destinations: tuple[MappedTo, ...], faults: list[str]
) -> None:
    whole = "exceeds 100% among all of it's weighted to mappings"
    known = {
        "one": 'Mapping "a" has a weight 101 that exceeds 100',
        "all": f'Mapping "a" {whole}',
        "east": f'Mapping "a" in cluster "east" {whole}',
    }
    assert texts(mapping_issues({"a": destinations})) == [known.get(each, each) for each in faults]


def test_very_many_declarations_are_refused_without_a_look_at_them() -> None:
    over = DECLARED_MAX + 1
    assert texts(export_issues((Export("", ""),) * over)) == [
        f"the account contains more than {DECLARED_MAX} exports"
    ]
    assert texts(import_issues((imported("", ""),) * over, A.public)) == [
        f"the account contains more than {DECLARED_MAX} imports"
    ]
    assert texts(mapping_issues({str(at): () for at in range(over)})) == [
        f"the account contains more than {DECLARED_MAX} mappings"
    ]
