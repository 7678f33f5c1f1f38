"""What of an archive a target cannot take is found before the first message is written."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.conformance.harness.process import ServerProcess
from tests.spark.conftest import Filler

from pyjs_spark.errors import OptionError
from pyjs_spark.options import parse_options
from pyjs_spark.pipelines import archive, replay, replay_run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LARGEST = 4 << 20  # max_payload of the tests' servers
Run = Callable[..., int]


@pytest.fixture
def again(server: ServerProcess, filler: Filler, spark: SparkSession, tmp_path: Path) -> Iterator[Run]:
    """Archive the test's stream, and write it to another; return how many messages that has then."""
    stream = f"{filler.name}_AGAIN"
    filler.raw.api(f"STREAM.CREATE.{stream}", name=stream, subjects=["again.>"])
    address, lake = f"nats://127.0.0.1:{server.port}", str(tmp_path)

    def run(**changes: str) -> int:
        options = parse_options({"stream": filler.name, "servers": address})
        for what in archive.plan(lake, options, 100):
            archive.write_range(options.connect, lake, what)
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


def test_an_empty_message_id_is_none(filler: Filler, again: Run) -> None:
    filler.create()
    filler.fill(3, headers=b"NATS/1.0\r\nNats-Msg-Id: \r\n\r\n")

    assert again() == 3
