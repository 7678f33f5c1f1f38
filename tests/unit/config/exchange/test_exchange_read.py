"""Exports, imports and mappings of a configuration file, as declarations."""

from __future__ import annotations

from tests.unit.config.conftest import Load, Refusal

from pyjs.config.exchange.declared import (
    CHUNKED,
    NS_PER_S,
    Exchange,
    Latency,
    MapDestination,
    ServiceExport,
    ServiceImport,
    StreamExport,
    StreamImport,
    SubjectMapping,
)

FILE = """
accounts {
    A {
        exports: [
            {stream: "s.>"}
            {stream: "of.*", account_token_position: 2}
            {service: "one", accounts: [B], response_type: chunk, threshold: "3s"}
            {service: "two", latency: "lat"}
            {service: "three", latency: {subject: "lat", sampling: headers}}
        ]
        maps: {"a": "b", "c": [{dest: d, weight: 20%}, {dest: e, weight: "30%"}], "f": {dest: g, weight: 5}}
    }
    B {
        imports: [
            {stream: {account: A, subject: "s.x"}, prefix: "p."}
            {stream: {account: A, subject: "of.B"}, to: "mine"}
            {service: {account: A, subject: "one"}, share: true}
        ]
    }
}
mappings: {"top": "level"}
"""


def test_a_file_becomes_declarations(load: Load) -> None:
    exchanges = load(FILE).exchanges()
    assert exchanges["$G"] == Exchange(mappings=(SubjectMapping("top", (MapDestination("level"),)),))
    assert exchanges["A"].exports == (
        StreamExport("s.>"),
        StreamExport("of.*", account_token_position=2),
        ServiceExport("one", ("B",), 0, CHUNKED, 3 * NS_PER_S),
        ServiceExport("two", latency=Latency("lat")),
        ServiceExport("three", latency=Latency("lat", 0)),
    )
    assert exchanges["A"].mappings == (
        SubjectMapping("a", (MapDestination("b"),)),
        SubjectMapping("c", (MapDestination("d", 20), MapDestination("e", 30))),
        SubjectMapping("f", (MapDestination("g", 5),)),
    )
    assert exchanges["B"].imports == (
        StreamImport("A", "s.x", "p.s.x"),
        StreamImport("A", "of.B", "mine"),
        ServiceImport("A", "one", share=True),
    )


def test_the_rest_of_the_weights_is_the_published_subject() -> None:
    shares = SubjectMapping("a.*", (MapDestination("b.$1", 20),))
    lossy = SubjectMapping("a", (MapDestination("a", 20),))
    assert shares.weighted() == [("b.$1", 20), ("a.$1", 80)]
    assert lossy.weighted() == [("a", 20)]


def test_a_problem_has_the_place_of_its_entry(refusal: Refusal) -> None:
    text = 'accounts {\nA {}\nB { imports: [\n{stream: {account: A, subject: "s"}}\n] }\n}'
    assert ':4:1: Error adding stream import "s": stream import not authorized;' in refusal(text)


def test_latency_needs_a_system_account(refusal: Refusal) -> None:
    text = 'no_system_account: true\naccounts { A { exports: [{service: "s", latency: "l"}] } }'
    assert 'Error adding service latency sampling for "s": system account not setup' in refusal(text)


def test_an_entry_is_one_of_both(refusal: Refusal) -> None:
    assert "a stream and a service" in refusal("accounts { A { exports: [{stream: a, service: b}] } }")
    assert "neither stream nor service" in refusal("accounts { A { exports: [{accounts: [A]}] } }")


def test_lists_and_maps_are_told_apart(refusal: Refusal) -> None:
    assert "Exports should be an array, found a map" in refusal("accounts { A { exports: {stream: a} } }")
    assert "a list of maps" in refusal("mappings { a: [b, c] }")
