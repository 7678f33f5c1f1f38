"""Messages of an archive that a target cannot take are found before the first message is written."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from spark.tests.conftest import Filler
from spark.tests.support.archived import archive_here
from tests.conformance.harness.process import ServerProcess

from pyjs_spark.errors import OptionError
from pyjs_spark.lake.replay import pipeline as replay
from pyjs_spark.lake.replay import run as replay_run
from pyjs_spark.options.reading import parse_options
from pyjs_spark.times import parse_rfc3339

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LARGEST = 4 << 20  # max_payload of the tests' servers
Run = Callable[..., int]


@pytest.fixture
def again(server: ServerProcess, filler: Filler, spark: SparkSession, tmp_path: Path) -> Iterator[Run]:
    """Archive the test's stream and replay it into another; return the number of messages in that stream."""
    stream = f"{filler.name}_AGAIN"
    filler.raw.api(f"STREAM.CREATE.{stream}", name=stream, subjects=["again.>"])
    address, lake = f"nats://127.0.0.1:{server.port}", str(tmp_path)

    def run(**changes: str) -> int:
        options = parse_options({"stream": filler.name, "servers": address})
        archive_here(lake, options, 100)
        head = {"source": lake, "stream": filler.name, "target": stream, "id": filler.name, **changes}
        found = replay.make(head, [f"{filler.subject.decode()}.> -> again.>"], {"servers": address})
        try:
            replay_run.run(spark, found, replay_run.plan(found), lambda done: None)
        finally:
            info = filler.raw.api(f"STREAM.INFO.{stream}")
        return int(info["state"]["messages"])

    yield run
    filler.api(f"STREAM.DELETE.{stream}")


def test_a_message_that_is_too_large_with_its_new_headers_is_told(filler: Filler, again: Run) -> None:
    filler.create()
    filler.fill(2)
    filler.fill(1, size=LARGEST - 60)
    filler.fill(1, size=LARGEST - 2000)

    with pytest.raises(
        OptionError, match=r"message 3 has 41\d+ bytes of headers and payload, with those that a"
    ):
        again()

    assert filler.raw.api(f"STREAM.INFO.{filler.name}_AGAIN")["state"]["messages"] == 0
    assert again(last_seq="2", id=f"{filler.name}-a") == 2
    assert again(first_seq="4", id=f"{filler.name}-b") == 3


def test_a_message_with_too_many_headers_is_told(filler: Filler, again: Run) -> None:
    filler.create()
    filler.fill(1, headers=b"NATS/1.0\r\nA: %b\r\n\r\n" % (b"a" * 65_400))

    with pytest.raises(
        OptionError, match=r"message 1 has 65\d+ bytes of headers, with those that a replay adds"
    ):
        again()


def test_messages_whose_ids_the_target_had_are_told(
    filler: Filler,
    again: Run,
    command: Callable[..., tuple[int, str, str]],
    server: ServerProcess,
    tmp_path: Path,
) -> None:
    filler.create()
    filler.fill(3)
    again()

    argv = [str(tmp_path), filler.name, f"{filler.name}_AGAIN", "--id", f"{filler.name}-2"]
    argv += ["--map", f"{filler.subject.decode()}.> -> again.>", "-s", f"nats://127.0.0.1:{server.port}"]
    code, out, _ = command("replay", *argv)

    assert (code, out) == (
        0,
        f"{filler.name}_AGAIN: 3 messages in 1 batches, 3 of them not stored because their ids were known, "
        "next sequence 4\n",
    )


def test_the_time_of_an_original_is_told_in_utc_in_any_session(
    filler: Filler, again: Run, spark: SparkSession
) -> None:
    filler.create()
    filler.fill(1)
    stored_at = filler.raw.api(f"STREAM.MSG.GET.{filler.name}", seq=1)["message"]["time"]

    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        again()
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)

    message = filler.raw.api(f"STREAM.MSG.GET.{filler.name}_AGAIN", seq=1)["message"]
    (said,) = re.findall(r"Pyjs-Origin-Ts: (\S+)\r\n", base64.b64decode(message["hdrs"]).decode())
    assert parse_rfc3339(said) == parse_rfc3339(stored_at)


def test_an_empty_message_id_is_none(filler: Filler, again: Run) -> None:
    filler.create()
    filler.fill(3, headers=b"NATS/1.0\r\nNats-Msg-Id: \r\n\r\n")

    assert again() == 3
