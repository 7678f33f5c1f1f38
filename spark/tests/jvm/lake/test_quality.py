"""`pyjs-pipeline quality`: its findings in streams and archives of both servers, and its exit codes."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from spark.tests.conftest import Filler, arrow_or_skip, wait_for
from spark.tests.support.archived import archive_here
from tests.conformance.harness.process import ServerProcess

arrow_or_skip()

import pyarrow as pa  # needs pyarrow
import pyarrow.parquet as pq

from pyjs_spark.cli.main import main
from pyjs_spark.lake import frames
from pyjs_spark.lake.tables.parquet import file_name
from pyjs_spark.options.reading import parse_options
from pyjs_spark.times import parse_rfc3339

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Say = Callable[..., tuple[int, dict[str, Any], str]]
NS = 10**9


@pytest.fixture
def say(server: ServerProcess, filler: Filler, command: Callable[..., tuple[int, str, str]]) -> Say:
    """Check the test's stream; return the exit code, the findings, and the stderr."""

    def run(*argv: str) -> tuple[int, dict[str, Any], str]:
        address = f"nats://127.0.0.1:{server.port}"
        code, out, err = command("quality", filler.name, *argv, "-s", address, "--json")
        streams = json.loads(out)["streams"] if out else [{}]
        return code, streams[0], err

    return run


@pytest.fixture
def archived(server: ServerProcess, filler: Filler, tmp_path: Path) -> Callable[[], Path]:
    """Archive the test's stream with the functions that workers run; return the folder."""

    def run(**more: str) -> Path:
        options = parse_options({"stream": filler.name, "servers": f"nats://127.0.0.1:{server.port}", **more})
        archive_here(tmp_path / "lake", options)
        return tmp_path / "lake"

    return run


def with_id(name: str) -> bytes:
    return b"NATS/1.0\r\nNats-Msg-Id: %b\r\n\r\n" % name.encode()


# -- streams --------------------------------------------------------------------------------------------------------


def test_a_stream_without_faults_ends_with_0(say: Say, filler: Filler) -> None:
    filler.create()
    filler.fill(12)

    code, said, err = say()

    assert (code, err) == (0, "")
    assert said == {
        "stream": filler.name,
        "low": 1,
        "high": 13,
        "rows": 12,
        "times": {"backwards": 0, "largest_s": 0.0, "samples": []},
        "gaps": {"messages": 0, "ranges": [], "count": 0},
        "duplicates": {"messages": 0, "samples": []},
    }
    assert filler.consumers() == []


def test_gaps_are_told_and_a_loss_only_if_asked_for(say: Say, filler: Filler) -> None:
    filler.create()
    filler.fill(12)
    filler.delete(3, 4, 7, 12)

    code, said, _ = say()

    assert code == 0
    assert said["gaps"] == {"messages": 4, "ranges": [[3, 5], [7, 8], [12, 13]], "count": 3}
    code, _, err = say("--fail-on-gaps")
    assert (code, err.count("\n")) == (3, 1)
    assert f"stream {filler.name}: 4 sequences have no message" in err


def test_message_ids_that_are_repeated_are_found(say: Say, filler: Filler) -> None:
    filler.create(duplicate_window=100_000_000)
    for name in ("a", "b", "a", "c", "a"):
        filler.fill(1, headers=with_id(name))
        wait_for(filler.raw, filler.name, 100, wait_s=0.3)  # until the server has forgotten the id
    filler.fill(1)

    code, said, err = say()

    assert (code, "2 messages have the id of another message" in err) == (5, True)
    assert said["duplicates"] == {"messages": 2, "samples": [[1, 5]]}
    assert "duplicates" not in say("-o", "includeHeaders=false")[1]


def test_only_what_the_options_choose_is_checked(say: Say, filler: Filler) -> None:
    filler.create()
    filler.fill(12)
    filler.delete(3, 8)

    _, said, _ = say(
        "-o", f'startingOffsets={{"{filler.name}": 5}}', "-o", f'endingOffsets={{"{filler.name}": 11}}'
    )
    filtered = say("-o", f"subjects={filler.subject.decode()}.1")[1]

    assert (said["low"], said["high"], said["rows"], said["gaps"]["messages"]) == (5, 11, 5, 1)
    assert (filtered["rows"], "gaps" in filtered) == (4, False)
    assert say("--fail-on-gaps", "-o", "subjects=a")[0] == 2
    assert say("-o", "pushdown=true")[0] == 2


def test_lateness_is_counted_from_the_time_of_the_event(say: Say, filler: Filler) -> None:
    filler.create()
    stored = parse_rfc3339(str(filler.api(f"STREAM.INFO.{filler.name}")["ts"]))
    for late_s in (0, 90, 30):
        event = f"{(stored - late_s * NS) / NS:.3f}".encode()
        filler.fill(1, headers=b"NATS/1.0\r\nAt: %b\r\n\r\n" % event)
    filler.fill(1)

    code, said, err = say("--event-time", "header:At", "--late-after", "1m")

    late = said["lateness"]
    assert (code, "1 messages were stored more than 0:01:00 after their event" in err) == (5, True)
    assert (late["messages"], late["without"], late["late"], late["out_of_order"]) == (3, 1, 1, 2)
    assert (late["samples"], 89 < late["greatest_s"] < 100, late["least_s"] < 20) == ([2], True, True)
    assert say("--event-time", "header:At")[0] == 0


def test_payloads_are_checked(say: Say, filler: Filler, tmp_path: Path) -> None:
    filler.create()
    subject = filler.subject + b".x"
    for payload in (b'{"id": 1, "at": "2026-01-31T12:00:00Z"}', b'{"id": "x"}', b"{", b"\xff", b"[]"):
        assert b'"seq"' in filler.raw.request(subject, payload)
    schema = tmp_path / "schema.json"
    schema.write_text('{"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]}')

    code, said, err = say("--payload", "json", "--event-time", "json:at")

    assert (code, "2 payloads are invalid" in err) == (5, True)
    assert (said["payloads"]["checked"], said["payloads"]["invalid"]) == (5, 2)
    assert [(each["seq"], each["why"][:8]) for each in said["payloads"]["samples"]] == [
        (3, "no JSON:"),
        (4, "no JSON:"),
    ]
    assert (said["lateness"]["messages"], said["lateness"]["without"]) == (1, 4)
    pytest.importorskip("jsonschema")
    code, said, _ = say("--schema", str(schema))
    assert (code, said["payloads"]["invalid"]) == (5, 4)
    assert said["payloads"]["samples"][0] == {"seq": 2, "why": "$.id: 'x' is not of type 'integer'"}
    for text, why in (("{", "this is no JSON"), ('{"type": 5}', "this is no JSON schema")):
        schema.write_text(text)
        code, _, err = say("--schema", str(schema))
        assert (code, why in err) == (2, True)
    assert "cannot be read: No such file" in say("--schema", str(tmp_path / "none"))[2]


def test_a_schema_without_its_package_is_told(
    say: Say, filler: Filler, monkeypatch: pytest.MonkeyPatch
) -> None:
    filler.create()
    monkeypatch.setitem(sys.modules, "jsonschema", None)

    code, _, err = say("--schema", "s.json")

    assert (code, "pip install jsonschema" in err) == (2, True)


@pytest.mark.parametrize(
    ("argv", "why"),
    [
        (["--event-time", "At"], "event_time=At is not allowed; allowed: header:NAME or json:FIELD"),
        (["--late-after", "5m"], "--late-after needs --event-time"),
        (["--late-after", "soon"], "allowed: a duration above zero"),
        (["--payload", "xml"], "payload=xml is not allowed; allowed: json"),
        (["-o", "includeHeaders=raw"], "includeHeaders=raw is not allowed in quality"),
        (["--event-time", "header:A", "-o", "includeHeaders=false"], "leave out includeHeaders=false"),
        (["-o", "readMode=direct"], "option readMode is not allowed in quality: it has no effect here"),
    ],
)
def test_what_makes_no_sense_ends_with_2(say: Say, argv: list[str], why: str) -> None:
    code, _, err = say(*argv)

    assert code == 2
    assert why in err


# -- archives -------------------------------------------------------------------------------------------------------


def test_an_archive_that_has_all_ends_with_0(say: Say, filler: Filler, archived: Callable[[], Path]) -> None:
    filler.create()
    filler.fill(12)
    filler.delete(4)
    lake = archived()
    filler.fill(2)
    filler.delete(1, 7)

    code, said, err = say(str(lake))

    assert (code, err) == (0, "")
    assert said["archive"] == {
        "files": 3,
        "rows": 11,
        "checked": 9,
        "missing": 0,
        "missing_seqs": [],
        "replaced": 0,
        "replaced_seqs": [],
        "removed_since": 2,
        "missing_files": [],
        "lost": [],
        "doubled": [],
        "damaged": [],
        "lag": 2,
        "other": "",
        "lost_end": "",
    }


def test_rows_that_a_file_lacks_are_a_loss(say: Say, filler: Filler, archived: Callable[[], Path]) -> None:
    filler.create()
    filler.fill(12)
    lake = archived()
    (path,) = lake.rglob("seq=*0006-*.parquet")
    table = pq.ParquetFile(path).read()
    pq.write_table(pa.concat_tables([table.slice(0, 2), table.slice(4)]), path)

    code, said, err = say(str(lake))

    assert (code, "files lack 2 messages that the stream has, first 8" in err) == (3, True)
    assert said["archive"]["missing_seqs"] == [8, 9]


def test_other_messages_under_the_same_sequences_are_a_loss(
    say: Say, filler: Filler, archived: Callable[[], Path]
) -> None:
    filler.create()
    filler.fill(12)
    lake = archived()
    filler.api(f"STREAM.DELETE.{filler.name}")
    created = filler.create()  # as a stream that was restored from a backup and then continued
    filler.fill(14)
    (path,) = lake.rglob("_archive.json")
    path.write_text(json.dumps({**json.loads(path.read_text()), "created": created}))

    code, said, err = say(str(lake))

    assert (code, "12 messages of the stream are others than the files have" in err) == (3, True)
    assert (said["archive"]["missing"], said["archive"]["replaced_seqs"]) == (0, list(range(1, 13)))


def test_a_stream_that_lost_its_end_is_told(say: Say, filler: Filler, archived: Callable[[], Path]) -> None:
    filler.create()
    filler.fill(12)
    lake = archived()
    (path,) = lake.rglob("seq=*0011-*.parquet")
    path.rename(path.with_name(path.name.replace("12.parquet", "20.parquet")))

    code, _, err = say(str(lake))

    assert (code, "ends at sequence 12, and the archive has messages up to 20" in err) == (3, True)


def test_a_range_said_to_be_empty_is_checked_too(
    say: Say, filler: Filler, archived: Callable[[], Path]
) -> None:
    filler.create()
    filler.fill(12)
    lake = archived()
    (path,) = lake.rglob("seq=*0006-*.parquet")
    (path.parents[1] / "_none").mkdir()
    (path.parents[1] / "_none" / path.name).touch()
    path.unlink()

    code, said, _ = say(str(lake))

    assert (code, said["archive"]["missing_seqs"]) == (3, [6, 7, 8, 9, 10])


def test_files_that_are_gone_are_told_and_can_be_written_again(
    say: Say, filler: Filler, archived: Callable[[], Path]
) -> None:
    filler.create()
    filler.fill(12)
    lake = archived()
    (path,) = lake.rglob("seq=*0006-*.parquet")
    path.unlink()

    code, said, err = say(str(lake))

    assert (code, "files are missing, first 6 to 10; the next run of the archive writes them" in err) == (
        5,
        True,
    )
    assert said["archive"]["missing_files"] == [[6, 11]]
    archived()
    assert say(str(lake))[0] == 0


def test_what_left_the_stream_before_it_was_archived_is_a_loss(
    say: Say, filler: Filler, archived: Callable[[], Path]
) -> None:
    filler.create()
    filler.fill(10)
    lake = archived()
    filler.fill(10)
    filler.api(f"STREAM.PURGE.{filler.name}", seq=14)

    code, said, err = say(str(lake))

    assert (code, "3 messages were removed before they were archived, first 11" in err) == (3, True)
    assert said["archive"]["lost"] == [[11, 14]]
    filler.api(f"STREAM.PURGE.{filler.name}")
    assert say(str(lake))[0] == 3


def test_damage_and_doubles_are_told(say: Say, filler: Filler, archived: Callable[[], Path]) -> None:
    filler.create()
    filler.fill(12)
    lake = archived()
    (first,) = lake.rglob("seq=*0001-*.parquet")
    (second,) = lake.rglob("seq=*0006-*.parquet")
    (first.parent / file_name(1, 4)).write_bytes(b"PAR1")
    second.rename(first.parent / file_name(7, 11))

    code, said, err = say(str(lake))

    assert code == 3
    assert "2 files are damaged" in err
    assert "two files have the sequences 1 to 3; remove one of them" in err
    assert "files are missing, first 6 to 6" in err
    assert [each["why"][:14] for each in said["archive"]["damaged"]] == [
        "cannot be read",
        "sequences 6 to",
    ]


def test_the_archive_of_another_stream_and_none_at_all(
    say: Say, filler: Filler, archived: Callable[[], Path], tmp_path: Path
) -> None:
    filler.create()
    filler.fill(3)

    code, _, err = say(str(tmp_path / "none"))

    assert (code, "there is no archive of the stream" in err) == (2, True)
    lake = archived()
    filler.api(f"STREAM.DELETE.{filler.name}")
    filler.create()
    code, _, err = say(str(lake))
    assert (code, "the archive is of another stream" in err) == (3, True)


def test_an_archive_of_some_subjects_is_held_against_those(
    say: Say, filler: Filler, archived: Callable[..., Path]
) -> None:
    filler.create()
    filler.fill(12)
    lake = archived(subjects=f"{filler.subject.decode()}.1")

    code, said, _ = say(str(lake))

    assert (code, said["archive"]["rows"], said["archive"]["checked"], said["rows"]) == (0, 4, 4, 12)


# -- the command ----------------------------------------------------------------------------------------------------


def test_the_report_for_people_and_a_file_that_asks_for_it(
    server: ServerProcess, filler: Filler, tmp_path: Path, command: Callable[..., tuple[int, str, str]]
) -> None:
    filler.create()
    filler.fill(4)
    filler.delete(2)
    file = tmp_path / "quality.toml"
    file.write_text(
        f'[pipeline]\nkind = "quality"\nstream = "{filler.name}"\nfail_on_gaps = true\npayload = "json"\n'
        f'[options]\nservers = "nats://127.0.0.1:{server.port}"\n'
    )

    assert command("validate", "-c", str(file))[0] == 0
    explained = command("explain", "-c", str(file))[1].splitlines()
    code, out, _ = command("run", "-c", str(file))
    said = out.splitlines()

    assert code == 3

    assert explained == [f"{filler.name}: sequences 1 to 4", "checks: duplicates, gaps, payloads, times"]
    assert said == [
        f"{filler.name}: 3 messages, sequences 1 to 4",
        "  times: backwards 0, largest_s 0",
        "  gaps: messages 1, count 1",
        "  duplicates: messages 0",
        "  payloads: checked 3, invalid 0",
    ]


def test_a_stream_that_is_not_there_or_a_server_ends_with_2_and_4(say: Say, filler: Filler) -> None:
    assert say()[0] == 2
    assert main(["quality", filler.name, "-s", "nats://127.0.0.1:1"]) == 4


# -- the frames -----------------------------------------------------------------------------------------------------


def test_times_that_go_back_are_found(spark: SparkSession) -> None:
    rows = [("S", 1, 5), ("S", 2, 7), ("S", 3, 6), ("S", 4, 4), ("S", 5, 8), ("T", 1, 1)]
    messages = spark.createDataFrame(rows, "stream string, seq bigint, ts_ns bigint")

    assert sorted(map(tuple, frames.backwards(messages).collect())) == [("S", 3, 1), ("S", 4, 3)]


TIMES = [
    ("2026-01-31T12:00:00.5Z", 1769860800 * NS + NS // 2),
    ("2026-01-31T13:00:00+01:00", 1769860800 * NS),
    ("1769860800", 1769860800 * NS),
    ("1769860800000", 1769860800 * NS),
    ("1769860800000000", 1769860800 * NS),
    (str(1769860800 * NS), 1769860800 * NS),
    ("1769860800.25", 1769860800 * NS + NS // 4),
    ("yesterday", None),
    ("2026-01-31", None),
    ("-5", None),
    ("0", None),
    ("", None),
    ("99999999999999999999", None),
    ("+294247-01-10T04:00:54Z", None),
]


def test_times_of_events_are_understood(spark: SparkSession) -> None:
    rows = [
        ("S", seq, 1, {"At": [said]}, json.dumps({"a": {"at": said}}).encode())
        for seq, (said, _) in enumerate(TIMES)
    ]
    schema = "stream string, seq bigint, ts_ns bigint, headers map<string,array<string>>, data binary"
    messages = spark.createDataFrame(rows, schema)

    for where in ("header:At", "json:a.at"):
        found = frames.event_times(messages, where).orderBy("seq").collect()
        assert [row.event_ns for row in found] == [ns for _, ns in TIMES]
    assert frames.event_times(messages, "json:a.b").where("event_ns IS NOT NULL").count() == 0
