"""Blocks of declared assets: stored unchanged, and equal if they have the same meaning."""

from __future__ import annotations

from pyjs.config.load import load_options
from pyjs.config.options import Options


def options(blocks: str) -> Options:
    return load_options("f", lambda path: f"jetstream {{ {blocks} }}", {}, {})


def test_blocks_are_equal_wherever_they_stand() -> None:
    first = options("streams { S { subjects: [a, b], max_age: 2026-01-01T00:00:00Z } }").jetstream.declared
    moved = options(
        "\n\nstreams {\nS {\nmax_age: 2026-01-01T00:00:00Z\nsubjects: [a, b] } }"
    ).jetstream.declared
    other = options("streams { S { subjects: [a, c] } }").jetstream.declared
    assert first == moved
    assert first != other
    assert first.streams != 5
    assert len({first.streams, moved.streams}) == 1


def test_only_blocks_with_entries_declare() -> None:
    assert not options("streams {}, kv {}").declares_assets
    assert options("object_store { o {} }").declares_assets


def test_compacted_blocks_compare_and_show_the_same() -> None:
    text = "streams { S { subjects: [a, b] }, T {} }, kv { b { history: 5 } }"
    compact, whole = options(text), options(text)
    compact.compact_declared()
    compact.compact_declared()
    assert compact.declares_assets
    assert compact.jetstream.declared == whole.jetstream.declared
    assert compact.jetstream.declared != options("streams { S {} }").jetstream.declared
    assert (
        [*compact.jetstream.declared.streams.names] == [*whole.jetstream.declared.streams.names] == ["S", "T"]
    )
    assert not compact.jetstream.declared.streams.entries
