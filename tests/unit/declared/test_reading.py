"""Declared assets of a file: the values that are read, and the place of each error."""

from __future__ import annotations

import pytest

from pyjs.config.errors import ConfigError
from pyjs.config.load import load_options
from pyjs.config.options import Options, Worker
from pyjs.config.ports.workers import place_worker
from pyjs.declared.assets import AccountAssets
from pyjs.declared.reading import read_assets
from pyjs.server.declaring.part import read_declared

SECOND = 1_000_000_000


def options(text: str) -> Options:
    return load_options("server.conf", lambda path: text, {}, {})


def declared(blocks: str) -> AccountAssets:
    """Return the assets of the global account."""
    (found,) = read_assets(options(f"jetstream {{ store_dir: x\n{blocks}\n}}"))
    return found


def problems(blocks: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        declared(blocks)
    return str(caught.value).splitlines()


def test_a_stream_has_the_options_of_the_api() -> None:
    asset = declared('streams { S { Subjects: ["a", "b"], max_bytes: 1GB, storage: memory } }').streams["S"]
    assert asset.config.subjects == ("a", "b")
    assert (asset.config.max_bytes, asset.config.storage, asset.config.max_msgs) == (1 << 30, "memory", 0)
    assert (asset.kind, asset.shown_name, asset.allow_data_loss) == ("stream", "S", False)
    assert str(asset.place) == "server.conf:2:11"


@pytest.mark.parametrize(
    ("written", "nanoseconds"),
    [
        ('"5m"', 300 * SECOND),
        ('"1h30m"', 5400 * SECOND),
        ('"30d"', 30 * 86400 * SECOND),
        ('"1d12h"', 36 * 3600 * SECOND),
        ("300000000000", 300 * SECOND),
        ("0", 0),
    ],
)
def test_a_duration_has_units_or_is_in_nanoseconds(written: str, nanoseconds: int) -> None:
    assert declared(f"streams {{ S {{ max_age: {written} }} }}").streams["S"].config.max_age_ns == nanoseconds


@pytest.mark.parametrize(
    ("field", "text"),
    [
        ("max_age: 5m", '"max_age" is the number 5000000 without quotes around 5m; write "5m" in quotes'),
        ("max_age: 60", '"max_age" is 60 nanoseconds, too short to be meant; write the unit: "60s"'),
        ('max_age: "5 minutes"', '"max_age" is no duration: '),
        ("max_age: true", '"max_age" is true; should be a valid integer'),
        ("max_age: 2026-01-31T00:00:00Z", '"max_age" is a date'),
        ("max_age: [[5m]]", '"max_age" is a list; should be a valid integer'),
        ("max_age: { a: b }", '"max_age" is a map; should be a valid integer'),
        ("max_ages: 1", 'unknown field "max_ages"; did you mean "max_age"?'),
        ("name: T", 'unknown field "name"'),
        ("storage: disk", "\"storage\" is the string \"disk\"; should be 'memory' or 'file'"),
        ('max_msgs: "5"', '"max_msgs" is the string "5"; should be a valid integer'),
        (
            "max_msgs: 9223372036854775808",
            "9223372036854775808 is too large: it does not fit in 64 bits",
        ),
        ("max_msg_size: 3GB", '"max_msg_size" is the number 3GB; should be less than or equal to 2147483647'),
        ("subjects: [1]", '"subjects.0" is the number 1; should be a valid string'),
        ("subjects: [[a]]", '"subjects.0" is a list; should be a valid string'),
        ("subjects: { a: b }", '"subjects.0" is a map; should be a valid string'),
        ("mirror: origin", '"mirror" is the string "origin"; should be'),
        ("mirror: { nam: A }", 'unknown field "nam"; did you mean "name"?'),
        ("metadata: { a: 1 }", '"metadata.a" is the number 1; should be a valid string'),
        ("sealed: 1", '"sealed" is the number 1; should be a valid boolean'),
        ("max_age: 0, MAX_AGE: 0", '"MAX_AGE" is set twice; remove one of the two'),
        ("allow_data_loss: yes_please", '"allow_data_loss" expects true or false'),
        ('max_age: "50ms"', 'stream "S": max age needs to be >= 100ms'),
        ("sealed: true", 'stream "S": stream configuration for create can not be sealed'),
        ("num_replicas: 3", 'stream "S": replicas > 1 not supported in non-clustered mode'),
        ("subjects: [a, a]", 'stream "S": subject "a" overlaps with "a"'),
        ("mirror: { name: S }", 'stream "S": '),
    ],
)
def test_a_wrong_field_is_refused_with_its_place(field: str, text: str) -> None:
    (line,) = problems(f"streams {{ S {{ {field} }} }}")
    assert line.startswith("server.conf:2:")
    assert text in line


@pytest.mark.parametrize("name", ['"a.b"', '"a b"', '"a/b"', '"*"', f'"{"x" * 256}"'])
def test_a_name_that_the_api_refuses_is_refused(name: str) -> None:
    assert "name" in problems(f"streams {{ {name} {{}} }}")[0]


def test_an_entry_that_is_no_map_is_refused() -> None:
    assert problems("streams { S: 5 }")[0].startswith(
        'server.conf:2:14: "S" expects a map, found the number 5'
    )
    assert '"streams" expects a map' in problems("streams: [S]")[0]


def test_streams_that_want_the_same_subjects_are_refused_with_both_places() -> None:
    (line,) = problems('streams {\nA { subjects: "x.>" }\nB { subjects: "x.y" } }')
    assert line == (
        'server.conf:4:1: the subjects of "B" overlap with those of the stream "A", at server.conf:3:1;'
        " give each subject to one stream"
    )


def test_a_stream_in_two_blocks_is_refused_with_both_places() -> None:
    (line,) = problems("streams { KV_settings {} }\nkv { settings {} }")
    assert 'the stream "KV_settings" is declared twice, first at server.conf:2:11' in line


def test_mirrors_in_a_circle_are_refused() -> None:
    lines = problems("streams { A { sources: [{name: B}] }\nB { sources: [{name: A}] } }")
    assert lines
    assert all("cycle" in line for line in lines)


def test_twenty_thousand_subjects_are_read() -> None:
    subjects = ", ".join(f"s.{number}" for number in range(20_000))
    assert (
        len(declared(f"streams {{ S {{ subjects: [{subjects}] }} }}").streams["S"].config.subjects) == 20_000
    )


def test_no_more_than_fifty_problems_are_shown() -> None:
    entries = "\n".join(f"S{number} {{ storag: file }}" for number in range(200))
    assert len(problems(f"streams {{ {entries} }}")) == 50


def test_half_a_character_is_refused() -> None:
    (line,) = problems('streams { S { description: "\udc80" } }')
    assert "the entry is invalid" in line


@pytest.mark.parametrize(
    "text",
    ['streams { "S\udc80" {} }', 'consumers { "S\udc80" { c {} } }', 'consumers { S { "c\udc80" {} } }'],
)
def test_half_a_character_in_a_name_is_refused(text: str) -> None:
    (line,) = problems(text)
    assert "the name is not valid UTF-8" in line


def test_a_variable_in_a_block_is_no_stream() -> None:
    found = declared('streams { age: "1h", S { max_age: $age } }')
    assert list(found.streams) == ["S"]
    assert found.streams["S"].config.max_age_ns == 3600 * SECOND


def test_a_time_is_written_without_quotes() -> None:
    found = declared(
        "consumers { S { c { deliver_policy: by_start_time, opt_start_time: 2026-01-31T00:00:00Z } } }"
    )
    assert found.consumers["S", "c"].config.opt_start_time_ns == 1_769_817_600 * SECOND


def test_a_consumer_is_durable_under_its_key() -> None:
    found = declared(
        'consumers { S { c { ack_policy: explicit, backoff: ["1s", "5s"], allow_data_loss: true } } }'
    )
    asset = found.consumers["S", "c"]
    assert (asset.name, asset.shown_name, asset.kind) == ("c", "S > c", "consumer")
    assert (asset.config.durable_name, asset.config.name) == ("c", "c")
    assert asset.config.backoff_ns == (SECOND, 5 * SECOND)
    assert asset.allow_data_loss


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        ("S: 5", '"S" expects a map'),
        ("S { c: 5 }", '"c" expects a map'),
        ("S { c { ack_wait: 30 } }", '"ack_wait" is 30 nanoseconds'),
        ("S { c { backoff: [5] } }", '"backoff" is 5 nanoseconds'),
        ("S { c { ack_polici: all } }", 'did you mean "ack_policy"?'),
        ("S { c { durable_name: d } }", 'unknown field "durable_name"'),
        ('S { "c.d" {} }', "can not contain"),
        (f"S {{ {'c' * 300} {{}} }}", "consumer name is too long"),
        ("S { c { filter_subject: a, filter_subjects: [b] } }", 'consumer "S > c": '),
    ],
)
def test_a_wrong_consumer_is_refused_with_its_place(entry: str, text: str) -> None:
    (line,) = problems(f"consumers {{ {entry} }}")
    assert line.startswith("server.conf:2:")
    assert text in line


def test_nothing_is_known_of_a_stream_that_the_file_does_not_declare() -> None:
    assert declared("consumers { S { c { num_replicas: 3 } } }").consumers["S", "c"].config.num_replicas == 3


def test_a_consumer_is_checked_against_the_limits_of_its_declared_stream() -> None:
    (line,) = problems(
        "streams { S { consumer_limits: { max_ack_pending: 10 } } }\n"
        "consumers { S { c { ack_policy: explicit, max_ack_pending: 20 } } }"
    )
    assert "max ack pending exceeds" in line


@pytest.mark.parametrize(
    ("bucket", "text"),
    [
        ('"a.b" {}', "the name of a bucket has only letters, digits, _ and -"),
        ("b { history: 65 }", "history is 65, and must be from 1 to 64"),
        ("b { history: 0 }", "history is 0"),
        ("b { mirror: {name: c}, sources: [{name: d}] }", "a mirror or sources, not both"),
        ("b { compression: s2 }", '"compression" is the string "s2"; should be a valid boolean'),
        ("b { subjects: x }", 'unknown field "subjects"'),
    ],
)
def test_a_wrong_bucket_is_refused(bucket: str, text: str) -> None:
    (line,) = problems(f"kv {{ {bucket} }}")
    assert text in line


def test_accounts_declare_their_own() -> None:
    found = read_assets(
        options(
            "jetstream { store_dir: x }\n"
            "accounts { A { jetstream { max_streams: 5, streams { S {} }, consumers { S { c {} } } } },"
            " B { jetstream { streams: 3, kv { b {} }, object_store { o {} } } }, C { jetstream: enabled } }"
        )
    )
    assert [(each.account, list(each.streams)) for each in found] == [("A", ["S"]), ("B", ["KV_b", "OBJ_o"])]
    assert [each.limits.max_streams for each in found] == [5, 3]
    assert list(found[0].consumers) == [("S", "c")]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("jetstream { enabled: false, streams { S {} } }", "JetStream is disabled; remove enabled: false"),
        (
            "jetstream { streams { S {} } }\naccounts { A { jetstream: enabled } }",
            "the global account $G, which has no JetStream; declare them in the block jetstream of an account",
        ),
        ("accounts { A { jetstream { kv { b {} } } } }", "and the server has no JetStream; add jetstream {"),
    ],
)
def test_an_account_without_jetstream_declares_nothing(text: str, line: str) -> None:
    with pytest.raises(ConfigError, match=r"server.conf:1:") as caught:
        read_assets(options(text))
    assert line in str(caught.value)


def test_the_first_of_several_workers_has_the_assets_of_one_server() -> None:
    found = options("workers: 2\njetstream { streams { S {} } }")
    for number, names in ((1, ["S"]), (2, [])):
        placed = place_worker(found, Worker(number, 2, "id", 4222, 0, "/tmp"))
        declared = read_declared(placed)
        assert [name for each in declared for name in each.streams] == names
        assert not any(each.is_clustered for each in declared)


def test_a_file_without_blocks_declares_nothing() -> None:
    empty = options("jetstream { streams {} }\naccounts { A {} }")
    assert not empty.declares_assets
    assert read_assets(empty) == ()
