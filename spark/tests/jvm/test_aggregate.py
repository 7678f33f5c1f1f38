"""`aggregate` in a real Spark, on both servers: windows into a bucket and into a stream, from a checkpoint on."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from spark.tests.conftest import Filler
from tests.conformance.harness.process import ServerProcess

from pyjs_spark.cli import aggregate_command
from pyjs_spark.errors import OptionError, StreamMissing
from pyjs_spark.lake import aggregate, aggregate_run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VALUES = {
    "orders": "count",
    "told": "count(amount)",
    "revenue": "sum(amount)",
    "least": "min(amount)",
    "most": "max(amount)",
    "mean": "avg(amount)",
    "customers": "distinct(customer.id)",
    "about": "approx_distinct(customer.id)",
}
Run = Callable[..., dict[str, int]]
Results = Callable[[], dict[str, dict[str, Any]]]


@pytest.fixture
def orders(filler: Filler) -> Callable[..., None]:
    """Publish orders: seconds after 2026-01-31T12:00:00Z, the last token of the subject, and what else is in it."""
    filler.create()

    def publish(*all_of_them: tuple[int, str, dict[str, Any]]) -> None:
        for second, token, more in all_of_them:
            at = f"2026-01-31T12:{second // 60:02}:{second % 60:02}Z"
            payload = json.dumps({"at": at, **more}).encode()
            assert b'"seq"' in filler.raw.request(filler.subject + b"." + token.encode(), payload)

    return publish


@pytest.fixture
def head(server: ServerProcess, filler: Filler, tmp_path: Path) -> Iterator[dict[str, str]]:
    """What the test's pipeline is told."""
    yield {
        "stream": filler.name, "target": f"kv:{filler.name}", "checkpoint": str(tmp_path / "checkpoint"),
        "window": "1m", "late": "10m", "time": "at", "create": "true",
    }  # fmt: skip
    filler.raw.try_api(f"STREAM.DELETE.KV_{filler.name}")


@pytest.fixture
def run(spark: SparkSession, server: ServerProcess, head: dict[str, str]) -> Run:
    """Aggregate what there is."""

    def act(values: dict[str, str] | None = None, **changes: str) -> dict[str, int]:
        options = {"servers": f"nats://127.0.0.1:{server.port}"}
        found = aggregate.make({**head, **changes}, values or VALUES, options)
        return aggregate_command.follow(aggregate_run.start(spark, found), show=False)

    return act


@pytest.fixture
def results(filler: Filler) -> Results:
    """Return what the bucket holds: key -> value."""

    def read() -> dict[str, dict[str, Any]]:
        stream = f"KV_{filler.name}"
        last = filler.api(f"STREAM.INFO.{stream}")["state"]["last_seq"]  # type: ignore[index]
        answers = (filler.raw.try_api(f"STREAM.MSG.GET.{stream}", seq=seq) for seq in range(1, last + 1))
        found = [each["message"] for each in answers if "message" in each]
        prefix = f"$KV.{filler.name}."
        return {
            each["subject"].removeprefix(prefix): json.loads(base64.b64decode(each["data"])) for each in found
        }

    return read


@pytest.mark.parametrize("at", ["2999-01-01T00:00:00Z", "+294247-01-10T04:00:54Z", "-290308-01-01T00:00:00Z"])
def test_an_event_time_far_from_its_message_spoils_nothing(
    run: Run, orders: Callable[..., None], results: Results, head: dict[str, str], filler: Filler, at: str
) -> None:
    orders((1, "new", {"at": at}))
    run({"orders": "count"}, by="all")
    orders((2, "new", {"at": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"}))

    done = run({"orders": "count"}, by="all")

    assert done["late"] == 0
    assert sum(each["orders"] for each in results().values()) == 2


def test_windows_of_each_subject_go_into_a_bucket(
    run: Run, orders: Callable[..., None], results: Results, filler: Filler
) -> None:
    orders(
        (1, "new", {"amount": 10, "customer": {"id": "a"}}),
        (2, "new", {"amount": 0.1, "customer": {"id": "b"}}),
        (3, "new", {"amount": 0.2, "customer": {"id": "a"}}),
        (4, "new", {"amount": "none"}),
        (5, "paid", {"amount": 100}),
        (61, "new", {"amount": -3}),
    )

    done = run()

    found, name = results(), filler.name.lower()
    assert done == {"messages": 6, "late": 0, "open": 3}
    assert sorted(found) == [
        f"20260131T120000Z.{name}.new",
        f"20260131T120000Z.{name}.paid",
        f"20260131T120100Z.{name}.new",
    ]
    assert found[f"20260131T120000Z.{name}.new"] == {
        "start": "2026-01-31T12:00:00Z",
        "end": "2026-01-31T12:01:00Z",
        "group": f"{name}.new",
        "orders": 4, "told": 4, "revenue": 10.3, "least": 0.1, "most": 10, "mean": 3.433333333,
        "customers": 2, "about": 2,
    }  # fmt: skip
    assert found[f"20260131T120000Z.{name}.paid"]["mean"] == 100
    assert found[f"20260131T120100Z.{name}.new"]["least"] == -3


def test_a_query_goes_on_and_a_window_grows(
    run: Run, orders: Callable[..., None], results: Results, filler: Filler
) -> None:
    orders((1, "new", {"amount": 1}), (2, "new", {"amount": 2}))
    first = run()
    orders((3, "new", {"amount": 3}), (65, "new", {"amount": 4}))

    second, third = run(), run()

    assert [done["messages"] for done in (first, second, third)] == [2, 2, 0]
    found = results()
    assert [(each["orders"], each["revenue"]) for _, each in sorted(found.items())] == [(3, 6), (1, 4)]


def test_a_batch_that_was_not_finished_is_done_again_and_counts_once(
    run: Run, orders: Callable[..., None], results: Results, tmp_path: Path
) -> None:
    orders((1, "new", {"amount": 1}), (2, "new", {"amount": 2}))
    run()
    commits = tmp_path / "checkpoint" / "commits"
    for left in sorted(commits.iterdir()):
        left.unlink()  # as if it had been killed after the results were written

    run()

    assert [(each["orders"], each["revenue"]) for each in results().values()] == [(2, 3)]


def test_groups_are_tokens_and_keys_hold_any_of_them(
    run: Run, orders: Callable[..., None], results: Results, filler: Filler
) -> None:
    orders((1, "a.x", {}), (2, "a.é", {}), (3, "b", {}))

    run({"n": "count"}, by="$3.$2")

    assert {(key.partition(".")[2], each["group"]) for key, each in results().items()} == {
        ("x.a", "x.a"),
        ("=C3=A9.a", "é.a"),
        ("_.b", "_.b"),
    }


def test_final_windows_go_into_a_stream_once(
    run: Run, orders: Callable[..., None], filler: Filler, tmp_path: Path
) -> None:
    stream = f"{filler.name}_STATS"
    filler.raw.api(f"STREAM.CREATE.{stream}", name=stream, subjects=["stats.>"], storage="memory")
    orders((1, "new", {"amount": 1}), (2, "new", {"amount": 2}), (70, "new", {"amount": 5}))

    to = {"target": "subject:stats.orders", "create": "false", "late": "1s", "by": "all"}
    first = run(**to)
    orders((200, "new", {"amount": 9}))
    run(**to)
    orders((1, "new", {"amount": 100}))  # too late
    last = run(**to)

    read = [filler.api(f"STREAM.MSG.GET.{stream}", seq=seq)["message"] for seq in (1, 2)]
    found = [json.loads(base64.b64decode(each["data"])) for each in read]  # type: ignore[index]
    assert filler.api(f"STREAM.INFO.{stream}")["state"]["messages"] == 2  # type: ignore[index]
    assert [(each["start"], each["orders"], each["revenue"]) for each in found] == [
        ("2026-01-31T12:00:00Z", 2, 3),
        ("2026-01-31T12:01:00Z", 1, 5),
    ]
    assert (first["open"], last["late"]) == (1, 1)
    filler.api(f"STREAM.DELETE.{stream}")


def test_another_definition_needs_another_checkpoint(
    run: Run, orders: Callable[..., None], filler: Filler
) -> None:
    orders((1, "new", {}))
    run({"n": "count"})

    with pytest.raises(OptionError, match="it was begun with window_s=60, now window_s=120 is asked for"):
        run({"n": "count"}, window="2m")


def test_a_bucket_that_is_not_there_is_told_before_anything(
    run: Run, orders: Callable[..., None], tmp_path: Path
) -> None:
    with pytest.raises(StreamMissing, match="there is no such bucket; make it"):
        run(create="false")

    assert not (tmp_path / "checkpoint").exists()


def test_the_command_from_an_empty_folder_to_checked_results(
    command: Callable[..., tuple[int, str, str]], server: ServerProcess, filler: Filler, orders: Callable[..., None],
    results: Results, head: dict[str, str], tmp_path: Path,
) -> None:  # fmt: skip
    orders(*((second, "new", {"amount": second}) for second in range(12)))
    file, keys = tmp_path / "rates.toml", "\n".join(f'{key} = "{said}"' for key, said in head.items())
    file.write_text(
        f'[pipeline]\nkind = "aggregate"\n{keys}\n[values]\norders = "count"\n'
        f'revenue = "sum(amount)"\n[options]\nservers = "nats://127.0.0.1:{server.port}"\n'
    )

    before = command("run", "-c", str(file), "--dry-run")
    first = command("run", "-c", str(file))
    after = command("status", "-c", str(file), "--json")
    second = command("run", "-c", str(file))
    filler.api(f"STREAM.DELETE.{filler.name}")
    filler.create()
    lost = command("status", "-c", str(file))

    assert (before[0], before[1].splitlines()[1].split()) == (0, [filler.name, "1", "12", "12"])
    assert first == (0, f"12 messages, 1 windows open, to kv:{filler.name}\n", "")
    said = json.loads(after[1])
    assert said["streams"] == [{"stream": filler.name, "next": 13, "last": 12, "lag": 0}]
    assert said["watermark"] == "2026-01-31T11:50:11Z"
    assert second == (0, "nothing new\n", "")
    assert [(each["orders"], each["revenue"]) for each in results().values()] == [(12, 66)]
    assert lost[0] == 3
    assert "the checkpoint is of the stream created at" in lost[2]
