"""Commands of the documents run as printed, in order, in the shared Spark; so does the example of the manual."""

from __future__ import annotations

import json
import shlex
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from spark.tests.conftest import Filler
from spark.tests.support.documents import NOTEBOOKS, SPARK, examples, is_only_checked
from tests.conformance.harness import cli
from tests.conformance.harness.process import ServerProcess
from tests.docs.pages import blocks, commands
from tests.style.tree import ROOT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    Command = Callable[..., tuple[int, str, str]]

NATS = cli.program()  # without it, requests to the API take the place of its commands
OFFLINE = ("validate", "run", "submit-args")  # commands that take no --server, or have it in their file
ORDER = {"order": 1, "customer": "ann", "amount": 12.5, "paid_at": 0}
DELETED = ("ORDERS", "AGAIN", "DEAD_LETTERS", "ORDERS_DEAD")


class Reader:
    """A reader who types the commands of a page in an empty directory."""

    def __init__(self, run: Command, filler: Filler, port: int, folder: Path) -> None:
        self._run = run
        self._filler = filler
        self._folder = folder
        self._here = {"127.0.0.1:4222": f"127.0.0.1:{port}", "/data/": f"{folder}/"}
        self._url = f"nats://127.0.0.1:{port}"

    def replaced(self, text: str) -> str:
        """Return a text of a page with the server and the folder of this test."""
        for there, instead in self._here.items():
            text = text.replace(there, instead)
        return text

    def play(self, page: Path) -> list[str]:
        """Run the commands of a page that are not only checked; return them."""
        for language, text in examples(page.read_text()):
            if language == "toml":
                kind = "replay" if '"replay"' in text else "pipeline"
                (self._folder / f"{kind}.toml").write_text(self.replaced(text))
        found = [each.text for block in blocks(page) if block.language == "sh" for each in commands(block)]
        played = [each.replace("\\\n", " ") for each in found if not is_only_checked(each)]
        for line in played:
            self.type(shlex.split(self.replaced(line), comments=True))
        return played

    def type(self, words: list[str]) -> None:
        """Run one command; it must succeed."""
        if words[0] == "nats":
            self._nats(words[1:])
            return
        name, *rest = (
            str(self._folder / word) if word.endswith((".toml", "order.json")) else word for word in words[1:]
        )
        if name not in OFFLINE and "--server" not in rest and "--latest" not in rest and name != "compact":
            rest += ["--server", self._url]
        code, _, said = self._run(name, *rest)
        assert code == 0, f"{shlex.join(words)}: {said}"

    def _nats(self, words: list[str]) -> None:
        if NATS:
            subprocess.run([NATS, "--server", self._url, *words], check=True, capture_output=True)
            return
        assert words[:2] == ["stream", "add"], words
        subjects = words[words.index("--subjects") + 1].split(",")
        self._filler.raw.api(f"STREAM.CREATE.{words[2]}", name=words[2], subjects=subjects)


@pytest.fixture
def orders(server: ServerProcess) -> Iterator[Filler]:
    """The stream that the commands read."""
    found = Filler(server.port, "ORDERS")
    found.raw.api("STREAM.CREATE.ORDERS", name="ORDERS", subjects=["orders.>"], storage="memory")
    for subject in (b"orders.new", b"orders.paid"):
        order = ORDER | {"paid_at": int(time.time())}  # in time, says the check of quality
        assert b'"seq"' in found.raw.request(subject, json.dumps(order).encode())
    yield found
    for name in DELETED:
        found.raw.try_api(f"STREAM.DELETE.{name}")
    found.raw.close()


@pytest.fixture
def reader(
    command: Command, orders: Filler, server: ServerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Reader:
    monkeypatch.chdir(tmp_path)
    fields = {name: {} for name in ORDER}
    (tmp_path / "order.json").write_text(json.dumps({"type": "object", "properties": fields}))
    return Reader(command, orders, server.port, tmp_path)


@pytest.mark.timeout(600)  # fifteen commands, with a job or more each
def test_the_commands_of_the_guide_run(reader: Reader, spark: SparkSession, tmp_path: Path) -> None:
    played = reader.play(SPARK)

    assert len(played) == 15
    assert spark.read.parquet(f"{tmp_path}/lake").count() == 2
    assert spark.read.parquet(f"{tmp_path}/latest").count() == 2
    assert (tmp_path / "delta/ORDERS/_delta_log").is_dir()
    assert (tmp_path / "iceberg/catalog.db").is_file()
    assert (tmp_path / "submit/pyjs_spark.zip").is_file()


def test_the_commands_of_pipelines_run(reader: Reader, orders: Filler) -> None:
    reader.play(NOTEBOOKS / "pipelines.md")

    assert orders.raw.api("STREAM.INFO.AGAIN")["state"]["messages"] == 2


def test_the_spark_example_of_dead_letters_sends_messages_back(
    spark: SparkSession, reader: Reader, orders: Filler, capsys: pytest.CaptureFixture[str]
) -> None:
    # given: a letter of each of two consumers
    orders.raw.api("STREAM.CREATE.ORDERS_DEAD", name="ORDERS_DEAD", subjects=["$DLQ.ORDERS.>"])
    for seq, consumer in enumerate((b"bakery", b"butcher"), 1):
        head = (
            b"NATS/1.0\r\nDead-Letter-Reason: max_deliver\r\nDead-Letter-Consumer: %b\r\n"
            b"Dead-Letter-Subject: orders.new\r\n\r\n" % consumer
        )
        subject = b"$DLQ.ORDERS.%b.%d.orders.new" % (consumer, seq)
        orders.raw.send(
            b"HPUB %b %d %d\r\n%b%b\r\n" % (subject, len(head), len(head) + 6, head, b"again%d" % seq)
        )
    assert orders.raw.api("STREAM.INFO.ORDERS_DEAD")["state"]["messages"] == 2
    # when
    page = ROOT / "docs/dead-letters.md"
    (text,) = (block.text for block in blocks(page) if block.text.startswith("letters = ("))
    exec(compile(reader.replaced(text), str(page), "exec"), {"spark": spark})
    # then
    assert "max_deliver|    1" in capsys.readouterr().out
    assert orders.raw.api("STREAM.INFO.ORDERS")["state"]["messages"] == 3
    message = orders.raw.api("STREAM.MSG.GET.ORDERS", seq=3)["message"]
    assert (message["subject"], message["data"]) == ("orders.new", "YWdhaW4x")
