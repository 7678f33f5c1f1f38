"""`replay` in a real Spark, into both servers: every message once, in order, also after kills."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from spark.tests.conftest import Filler, required
from spark.tests.support.archived import archive_here
from tests.conformance.harness.process import ServerProcess

from pyjs_spark.errors import DataLoss, OptionError
from pyjs_spark.lake.lakes import Lake
from pyjs_spark.lake.replay import ledger as replay_ledger
from pyjs_spark.lake.replay import pipeline as replay
from pyjs_spark.lake.replay import run as replay_run
from pyjs_spark.lake.replay.run import Replayed
from pyjs_spark.options.reading import parse_options
from pyjs_spark.times import parse_rfc3339

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HEADERS = (
    b"NATS/1.0\r\nKind: test\r\nKind: more\r\nNats-Msg-Id: %d\r\nNats-Expected-Last-Sequence: %d\r\n\r\n"
)
Run = Callable[..., list[Replayed]]


@pytest.fixture
def lake(server: ServerProcess, filler: Filler, tmp_path: Path) -> Callable[[], str]:
    """Archive the test's stream."""

    def write() -> str:
        options = parse_options({"stream": filler.name, "servers": f"nats://127.0.0.1:{server.port}"})
        archive_here(tmp_path / "lake", options)
        return str(tmp_path / "lake")

    return write


@pytest.fixture
def again(filler: Filler) -> Iterator[str]:
    """The stream into which the archive is replayed."""
    stream = f"{filler.name}_AGAIN"
    filler.raw.api(f"STREAM.CREATE.{stream}", name=stream, subjects=["again.>"], storage="memory")
    yield stream
    filler.api(f"STREAM.DELETE.{stream}")


@pytest.fixture
def run(server: ServerProcess, filler: Filler, spark: SparkSession, tmp_path: Path, again: str) -> Run:
    """Replay the archive of the test's stream."""

    def act(*maps: str, interrupted: bool = False, **head: str) -> list[Replayed]:
        given = {
            "source": str(tmp_path / "lake"),
            "stream": filler.name,
            "target": again,
            "id": filler.name,
            **head,
        }
        found = replay.make(given, list(maps), {"servers": f"nats://127.0.0.1:{server.port}"})

        def tell(each: Replayed) -> None:
            if interrupted:
                raise KeyboardInterrupt

        return replay_run.run(spark, found, replay_run.plan(found), tell)

    return act


def stored(filler: Filler, stream: str) -> list[dict[str, Any]]:
    """Return the messages of a stream: seq, subject, headers as text, data."""
    last = filler.api(f"STREAM.INFO.{stream}")["state"]["last_seq"]  # type: ignore[index]
    found = [filler.api(f"STREAM.MSG.GET.{stream}", seq=seq)["message"] for seq in range(1, last + 1)]
    return [
        {
            "subject": each["subject"],
            "headers": base64.b64decode(each.get("hdrs", "")).decode(),
            "data": base64.b64decode(each.get("data", "")),
        }
        for each in found  # type: ignore[attr-defined]
    ]


def test_a_replay_keeps_everything_and_says_where_it_came_from(
    run: Run, lake: Callable[[], str], filler: Filler, again: str
) -> None:
    filler.create()
    for seq in range(3):
        filler.fill(1, headers=HEADERS % (700 + seq, seq))
    lake()

    (done,) = run(f"{filler.name.lower()}.> -> again.here.>")

    found = stored(filler, again)
    assert done.rows == 3
    assert [each["subject"] for each in found] == ["again.here.1"] * 3
    assert [each["data"] for each in found] == [b"1"] * 3
    for seq, each in enumerate(found, 1):
        assert f"Pyjs-Origin-Stream: {filler.name}\r\n" in each["headers"]
        assert f"Pyjs-Origin-Seq: {seq}\r\n" in each["headers"]
        assert f"Nats-Msg-Id: {699 + seq}\r\n" in each["headers"]
        assert "Kind: test\r\nKind: more\r\n" in each["headers"]
        assert "Nats-Expected" not in each["headers"]
        message = filler.api(f"STREAM.MSG.GET.{filler.name}", seq=seq)["message"]
        at = replay_time(each["headers"])
        assert at.rstrip("Z").rstrip("0") == message["time"].rstrip("Z").rstrip("0")  # type: ignore[index]


def replay_time(headers: str) -> str:
    (line,) = [line for line in headers.split("\r\n") if line.startswith("Pyjs-Origin-Ts: ")]
    return line.removeprefix("Pyjs-Origin-Ts: ")


def test_a_replay_goes_on_where_it_ended_and_repeats_nothing(
    run: Run, lake: Callable[[], str], filler: Filler, again: str
) -> None:
    filler.create()
    filler.fill(12)
    lake()
    to = f"{filler.name.lower()}.> -> again.>"

    first = run(to, rows_per_batch="5")
    second = run(to, rows_per_batch="5")
    filler.fill(4)
    lake()
    third = run(to, rows_per_batch="5")

    assert [each.rows for each in (*first, *second, *third)] == [5, 5, 2, 3, 1]
    found = stored(filler, again)
    assert [f"Pyjs-Origin-Seq: {seq}\r\n" in each["headers"] for seq, each in enumerate(found, 1)] == [
        True
    ] * 16


def test_a_batch_whose_end_was_not_noted_is_done_again_and_adds_nothing(
    run: Run, lake: Callable[[], str], filler: Filler, again: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    filler.create()
    filler.fill(12)
    lake()
    to = f"{filler.name.lower()}.> -> again.>"
    written = replay_ledger.write

    def killed(client: Any, found: Any, ledger: Any) -> Any:
        if ledger.state == replay_ledger.DONE:
            raise KeyboardInterrupt
        return written(client, found, ledger)

    monkeypatch.setattr(replay_ledger, "write", killed)
    with pytest.raises(KeyboardInterrupt):
        run(to)
    monkeypatch.undo()
    filler.fill(3)
    lake()  # the archive grows meanwhile; the batch does not change
    done = run(to)

    assert [(each.low, each.high, each.rows) for each in done] == [(1, 13, 12), (13, 16, 3)]
    assert len(stored(filler, again)) == 15


def test_filters_choose_what_is_replayed(
    run: Run, lake: Callable[[], str], filler: Filler, again: str
) -> None:
    filler.create()
    filler.fill(12)
    lake()
    subject = filler.subject.decode()

    maps = (f"{subject}.2 -> again.first", f"{subject}.* -> again.$1.x")  # the first matching mapping applies
    run(*maps, subjects=f"{subject}.1,{subject}.2", first_seq="3", last_seq="10")

    found = stored(filler, again)
    assert [int(each["data"]) for each in found] == [4, 5, 7, 8, 10]
    assert [each["subject"] for each in found[:2]] == ["again.1.x", "again.first"]


def test_a_rate_is_kept(run: Run, lake: Callable[[], str], filler: Filler, again: str) -> None:
    filler.create()
    filler.fill(30)
    lake()

    run(f"{filler.name.lower()}.> -> again.>", rate="20")

    times = [filler.api(f"STREAM.MSG.GET.{again}", seq=seq)["message"]["time"] for seq in (1, 15, 30)]  # type: ignore[index]
    first, middle, last = (parse_rfc3339(each) / 1e9 for each in times)
    assert middle - first > 0.5
    assert last - middle > 0.5
    assert [int(each["data"]) for each in stored(filler, again)] == list(range(1, 31))


@pytest.mark.parametrize(
    ("maps", "said"),
    [
        ([], "and stream S[0-9]+_AGAIN takes again.>; map it"),
        (["other.> -> again.>"], "message [0-9]+ has the subject s[0-9]+.[0-9], which no mapping matches"),
    ],
)
def test_what_cannot_be_written_is_told_before_anything_is(
    run: Run, lake: Callable[[], str], filler: Filler, again: str, maps: list[str], said: str
) -> None:
    filler.create()
    filler.fill(6)
    lake()

    with pytest.raises(OptionError, match=said):
        run(*maps)

    assert stored(filler, again) == []


def test_two_messages_with_one_id_are_told(
    run: Run, lake: Callable[[], str], filler: Filler, again: str
) -> None:
    filler.create(duplicate_window=100_000_000)
    to = f"{filler.name.lower()}.> -> again.>"
    filler.fill(1, headers=b"NATS/1.0\r\nNats-Msg-Id: same\r\n\r\n")
    while filler.api(f"STREAM.INFO.{filler.name}")["state"]["messages"] != 2:  # type: ignore[index]
        filler.fill(1, headers=b"NATS/1.0\r\nNats-Msg-Id: same\r\n\r\n")  # until the window has passed
    lake()

    with pytest.raises(OptionError, match="messages 1 and 2 have the same Nats-Msg-Id same"):
        run(to)
    run(to, msg_ids="origin")

    found = stored(filler, again)
    assert [
        f"Nats-Msg-Id: {filler.name}:{seq}\r\n" in each["headers"] for seq, each in enumerate(found, 1)
    ] == [True] * 2


def test_another_replay_with_the_same_id_is_refused(
    run: Run, lake: Callable[[], str], filler: Filler
) -> None:
    filler.create()
    filler.fill(3)
    lake()
    run(f"{filler.name.lower()}.> -> again.>")

    with pytest.raises(OptionError, match=r"this replay was begun with map=\['s.*again.>'\], now map="):
        run(f"{filler.name.lower()}.> -> again.other.>")


def test_an_archive_with_a_hole_is_not_passed_over(
    run: Run, lake: Callable[[], str], filler: Filler, tmp_path: Path
) -> None:
    filler.create()
    filler.fill(12)
    lake()
    next((tmp_path / "lake").rglob("seq=*0006-*.parquet")).unlink()

    with pytest.raises(DataLoss, match="lacks messages 6 to 10"):
        run(f"{filler.name.lower()}.> -> again.>")


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_tables_are_replayed_as_files_are(
    run: Run,
    server: ServerProcess,
    filler: Filler,
    again: str,
    tmp_path: Path,
    kind: str,
) -> None:
    if not required("spark"):
        pytest.importorskip("deltalake" if kind == "delta" else "pyiceberg")
    filler.create()
    options = parse_options({"stream": filler.name, "servers": f"nats://127.0.0.1:{server.port}"})
    lake, to = Lake(str(tmp_path / "lake"), kind), f"{filler.name.lower()}.> -> again.>"
    filler.fill(12)
    filler.delete(*range(6, 11))  # one file of the archive is missing
    archive_here(lake, options)

    first = run(to, format=kind)
    filler.fill(3)
    archive_here(lake, options)
    second = run(to, format=kind)

    assert [(each.low, each.high, each.rows) for each in (*first, *second)] == [(1, 13, 7), (13, 16, 3)]
    assert [int(each["data"]) for each in stored(filler, again)] == [1, 2, 3, 4, 5, 11, 12, 1, 2, 3]
    with pytest.raises(OptionError, match=f"was begun with format={kind}; go on with that one"):
        run(to)


def test_the_command_from_an_archive_to_a_checked_stream(
    command: Callable[..., tuple[int, str, str]], server: ServerProcess, filler: Filler, lake: Callable[[], str],
    again: str, tmp_path: Path,
) -> None:  # fmt: skip
    filler.create()
    filler.fill(12)
    folder, file = lake(), tmp_path / "replay.toml"
    file.write_text(
        f'[pipeline]\nkind = "replay"\nsource = "{folder}"\nstream = "{filler.name}"\ntarget = "{again}"\n'
        f'id = "{filler.name}"\nmap = ["{filler.name.lower()}.> -> again.>"]\nrows_per_batch = 5\n'
        f'[options]\nservers = "nats://127.0.0.1:{server.port}"\n'
    )
    argv = ("replay", folder, filler.name, again, "--id", "another", "-s", f"nats://127.0.0.1:{server.port}")

    before = command("run", "-c", str(file), "--dry-run")
    planned = command("explain", "-c", str(file), "--json")
    first = command("run", "-c", str(file))
    after = command("status", "-c", str(file), "--json")
    second = command("run", "-c", str(file))
    refused = command(*argv)
    next((tmp_path / "lake").rglob("seq=*0006-*.parquet")).unlink()
    lost = command(*argv, "--map", f"{filler.name.lower()}.> -> again.>")

    assert (before[0], before[1].splitlines()[-2]) == (0, "3 batches, about 12 rows")
    assert json.loads(planned[1])["rows"] == 12
    assert first == (0, f"{again}: 12 messages in 3 batches, next sequence 13\n", "")
    assert json.loads(after[1]) == {"id": filler.name, "next": 13, "end": 13, "lag": 0, "is_open": False}
    assert second == (0, "nothing new\n", "")
    assert [int(each["data"]) for each in stored(filler, again)] == list(range(1, 13))
    assert refused[0] == 2
    assert f"stream {again} takes again.>; map it" in refused[2]
    assert lost[0] == 3
    assert "lacks messages 6 to 10" in lost[2]
