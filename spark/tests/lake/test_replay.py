"""Replays without servers: their definitions, their errors, and the planned batches."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pyjs_spark.cli.config import from_file
from pyjs_spark.cli.main import main
from pyjs_spark.errors import OptionError
from pyjs_spark.lake.archive import File, missing
from pyjs_spark.lake.replay import pipeline as replay
from pyjs_spark.lake.replay.pipeline import Replay

HEAD = {"source": "/data/lake", "stream": "ORDERS", "target": "AGAIN", "id": "once-more"}
FILE = """
[pipeline]
kind = "replay"
source = "/data/lake"
stream = "ORDERS"
target = "AGAIN"
id = "once-more"
map = ["orders.> -> again.>"]
subjects = ["orders.new", "orders.paid"]
since = "2026-01-31T12:00:00Z"
rate = 500
rows_per_batch = 1000
[options]
servers = "nats://a:4222"
maxInFlight = 100
[spark]
"spark.driver.memory" = "2g"
"""


def make(*maps: str, **changes: str) -> Replay:
    return replay.make({**HEAD, **changes}, list(maps), {})


def test_a_file_says_everything_about_a_replay(tmp_path: Path) -> None:
    (tmp_path / "again.toml").write_text(FILE)

    job = from_file(str(tmp_path / "again.toml"), {"retries": "9"})
    found: Replay = job.made

    assert (found.source, found.stream, found.target, found.id) == tuple(HEAD.values())
    assert [str(each) for each in found.maps] == ["orders.> -> again.>"]
    assert found.subjects == ("orders.new", "orders.paid")
    assert (found.since_ns, found.until_ns) == (1769860800 * 10**9, None)
    assert (found.rate, found.rows_per_batch, job.spark) == (500, 1000, {"spark.driver.memory": "2g"})
    assert (found.options.max_in_flight, found.options.retries) == (100, 9)
    assert found.options.connect.servers == ("nats://a:4222",)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"source": " "}, "replay needs source (folder or URI of the archive)"),
        ({"stream": "A,B"}, "stream=A,B is not allowed; allowed: the name of one stream"),
        ({"target": "A*"}, "target=A* is not allowed"),
        ({"id": "a.b"}, "id=a.b is not allowed; allowed: up to 100 letters"),
        ({"subjects": "a..b"}, "subjects=a..b is not allowed"),
        ({"first_seq": "0"}, "first_seq=0 is not allowed"),
        ({"first_seq": "9", "last_seq": "3"}, "first_seq=9 is above last_seq=3"),
        ({"since": "yesterday"}, "since=yesterday is not allowed; allowed: a time such as"),
        ({"since": "20", "until": "20"}, "since is not before until"),
        ({"format": "orc"}, "format=orc is not allowed; allowed: parquet, delta or iceberg"),
        ({"rate": "fast"}, "rate=fast is not allowed; allowed: a whole number from 1"),
        ({"msg_ids": "kep"}, "msg_ids=kep is not allowed; allowed: keep or origin"),
        ({"rows_per_batch": "0"}, "rows_per_batch=0 is not allowed"),
    ],
)
def test_what_is_wrong_is_told(changes: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError, match=re.escape(said)):
        make(**changes)


def test_an_option_that_a_replay_sets_itself_is_refused() -> None:
    with pytest.raises(OptionError, match="option sinkId: a replay sets it itself"):
        replay.make(HEAD, [], {"sinkId": "x"})


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('map = ["orders.> -> again.>"]', "map = 5", "map=5 is not allowed; allowed: a list of texts"),
        ("rate", "rat", "key rat is unknown; did you mean rate?"),
        ("[options]", "[sink]", "section sink is unknown"),
        ("maxInFlight", "maxInFlite", "did you mean maxInFlight?"),
        ("servers =", "subjects =", "option subjects is for reading"),
    ],
)
def test_what_is_wrong_in_a_file_is_one_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, old: str, new: str, said: str
) -> None:
    file = tmp_path / "again.toml"
    file.write_text(FILE.replace(old, new, 1))

    assert main(["validate", "-c", str(file)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"pyjs-pipeline: {file}: ")
    assert said in line


def test_a_replay_that_is_right_is_called_valid(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "again.toml").write_text(FILE)

    assert main(["validate", "-c", str(tmp_path / "again.toml")]) == 0
    assert (
        capsys.readouterr().out == "valid: replay of ORDERS from /data/lake to AGAIN; no server was asked\n"
    )


def test_an_archive_that_is_not_there_ends_with_2(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")

    assert main(["replay", str(tmp_path), "ORDERS", "AGAIN", "--id", "x", "--dry-run"]) == 2
    assert "no archive of stream ORDERS (format=parquet)" in capsys.readouterr().err


# -- ranges ---------------------------------------------------------------------------------------------------------


def files(*ends: tuple[int, int]) -> list[File]:
    return [File(f"seq={low}", low, high, 100) for low, high in ends]


def ranges(found: Replay, held: list[File], at: int, until: int | None = None) -> list[tuple[int, int, int]]:
    return [(each.low, each.high, len(each.files)) for each in replay.batches(found, held, at, until)]


def test_batches_end_at_multiples_and_where_the_archive_ends() -> None:
    held = files((1, 6), (6, 13), (13, 24))

    assert ranges(make(rows_per_batch="10"), held, 1) == [(1, 11, 2), (11, 21, 2), (21, 24, 1)]


def test_a_batch_that_was_begun_is_made_again_as_it_was() -> None:
    held = files((1, 6), (6, 13), (13, 24))

    assert ranges(make(rows_per_batch="10"), held, 11, 13) == [(11, 13, 1), (13, 21, 1), (21, 24, 1)]


def test_the_last_sequence_ends_a_replay() -> None:
    assert ranges(make(last_seq="7"), files((1, 6), (6, 13)), 3) == [(3, 8, 2)]
    assert ranges(make(last_seq="7"), files((1, 6), (6, 13)), 8) == []


def test_a_file_that_covers_nothing_is_not_read() -> None:
    held = [*files((1, 6)), File("none", 6, 11, 0)]

    assert ranges(make(), held, 1) == [(1, 11, 1)]


@pytest.mark.parametrize(
    ("held", "expected"),
    [
        ([(1, 6), (6, 13)], []),
        ([(1, 6), (8, 13)], [(6, 8)]),
        ([(4, 13)], [(1, 4)]),
        ([(1, 6)], []),
        ([(1, 20), (3, 5), (15, 30)], []),
    ],
)
def test_a_hole_in_an_archive_is_found(held: list[tuple[int, int]], expected: list[tuple[int, int]]) -> None:
    end = max(high for _, high in held)

    assert list(missing(1, end, held, 2**62)) == expected
