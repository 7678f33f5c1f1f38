"""`pyjs-pipeline dlq-report`: advisories of both servers, joined with the messages that they concern."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from spark.tests.conftest import Filler, arrow_or_skip, wait_for
from tests.conformance.harness.process import ServerProcess

arrow_or_skip()

import pyarrow.parquet as pq  # needs pyarrow

from pyjs_spark.cli.main import main

Say = Callable[..., tuple[int, dict[str, Any], str]]


class Letters:
    """A stream with consumers that give up messages, and a stream of the advisories about them."""

    def __init__(self, filler: Filler) -> None:
        self.filler = filler
        self.raw = filler.raw
        self.name = f"{filler.name}_DLQ"

    def create(self, **config: object) -> None:
        subjects = [
            f"$JS.EVENT.ADVISORY.CONSUMER.{kind}.{self.filler.name}.>"
            for kind in ("MAX_DELIVERIES", "MSG_TERMINATED")
        ]
        self.raw.api(f"STREAM.CREATE.{self.name}", name=self.name, subjects=subjects, storage="memory")
        self.filler.create(**config)

    def consumer(self, name: str, **config: object) -> None:
        told = {"durable_name": name, "ack_policy": "explicit", **config}
        self.filler.api(
            f"CONSUMER.CREATE.{self.filler.name}.{name}", stream_name=self.filler.name, config=told
        )

    def pull(self, consumer: str, answers: list[bytes]) -> None:
        """Pull messages one at a time and answer each; then pull again, which reports exhausted deliveries."""
        inbox = f"_P.{consumer}".encode()
        self.raw.send(b"SUB %b %b\r\n" % (inbox, b"8" if consumer == "tries" else b"9"))
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{self.filler.name}.{consumer}".encode()
        body = b'{"batch": 1, "expires": 2000000000}'
        request = b"PUB %b %b %d\r\n%b\r\n" % (subject, inbox, len(body), body)
        for answer in answers:
            self.raw.send(request)
            mark = f"$JS.ACK.{self.filler.name}.{consumer}.".encode()
            reply = next(reply for _, reply, _, _ in self.raw.frames() if reply.startswith(mark))
            self.raw.request(reply, answer)
        self.raw.send(request)

    def wait(self, count: int) -> None:
        """Wait until `count` advisories are stored."""
        assert wait_for(self.raw, self.name, count) == count

    def delete(self) -> None:
        self.raw.try_api(f"STREAM.DELETE.{self.name}")


@pytest.fixture
def letters(filler: Filler) -> Iterator[Letters]:
    made = Letters(filler)
    yield made
    made.delete()


@pytest.fixture
def say(server: ServerProcess, letters: Letters, command: Callable[..., tuple[int, str, str]]) -> Say:
    """Report the test's dead letters; return the exit code, the report, and the stderr."""

    def run(*argv: str) -> tuple[int, dict[str, Any], str]:
        told = ["dlq-report", letters.name, *argv, "-s", f"nats://127.0.0.1:{server.port}", "--json"]
        code, out, err = command(*told)
        return code, json.loads(out) if out else {}, err

    return run


@pytest.fixture
def two_kinds(letters: Letters) -> Letters:
    """Two messages that were delivered too often, and two terminated ones, one of these with a reason."""
    letters.create(allow_direct=True)
    letters.filler.fill(4, headers=b"NATS/1.0\r\nA: 1\r\n\r\n")
    letters.consumer("tries", max_deliver=1)
    letters.pull("tries", [b"-NAK", b"+ACK", b"+ACK", b"-NAK"])
    letters.wait(2)
    letters.consumer("ends")
    letters.pull("ends", [b"+ACK", b"+TERM bad order", b"+TERM", b"+ACK"])
    letters.wait(4)
    return letters


def test_dead_letters_are_counted_by_consumer_subject_and_reason(say: Say, two_kinds: Letters) -> None:
    code, said, err = say()

    subject = two_kinds.filler.subject.decode()
    assert (code, err) == (0, "")
    assert (said["letters"], said["gone"], said["others"]) == (4, 0, 0)
    found = {
        (each["consumer"], each["kind"], each["reason"] or "", each["subject"], each["count"])
        for each in said["groups"]
    }
    assert found == {
        ("tries", "max_deliveries", "", f"{subject}.1", 2),
        ("ends", "terminated", "bad order", f"{subject}.2", 1),
        ("ends", "terminated", "", f"{subject}.0", 1),
    }
    first = said["groups"][0]
    assert first["samples"] == [
        {"stream_seq": 1, "deliveries": 1, "data": "1"},
        {"stream_seq": 4, "deliveries": 1, "data": "4"},
    ]
    assert first["stream"] == two_kinds.filler.name
    assert first["first"] <= first["last"]
    assert sorted(two_kinds.filler.consumers()) == ["ends", "tries"]


def test_rows_go_to_a_parquet_file(say: Say, two_kinds: Letters, tmp_path: Path) -> None:
    two_kinds.filler.delete(2)
    target = tmp_path / "new" / "dead.parquet"

    code, said, _ = say(str(target), "--samples", "0")

    rows = pq.read_table(target).sort_by("advisory_seq").to_pylist()
    assert (code, said["gone"], said["groups"][0]["samples"]) == (0, 1, [])
    assert [(row["kind"], row["stream_seq"], row["is_there"], row["data"]) for row in rows] == [
        ("max_deliveries", 1, True, b"1"),
        ("max_deliveries", 4, True, b"4"),
        ("terminated", 2, False, None),
        ("terminated", 3, True, b"3"),
    ]
    assert rows[0]["headers"] == [("A", ["1"])]
    assert rows[2]["reason"] == "bad order"
    assert rows[0]["message_ts"] <= rows[0]["ts"]
    assert [path.name for path in target.parent.iterdir()] == ["dead.parquet"]


def test_the_report_goes_to_a_json_file(say: Say, two_kinds: Letters, tmp_path: Path) -> None:
    target = tmp_path / "dead.json"

    code, said, _ = say(str(target))

    assert (code, json.loads(target.read_text())) == (0, said)


def test_a_stream_without_direct_get_is_joined_too(say: Say, letters: Letters) -> None:
    letters.create(allow_direct=False, retention="workqueue")
    letters.filler.fill(3, headers=b"NATS/1.0\r\nA: 1\r\n\r\n")
    letters.consumer("tries", max_deliver=1)
    letters.pull("tries", [b"-NAK", b"+TERM", b"-NAK"])
    letters.wait(3)

    _, said, _ = say()

    found = {(each["kind"], each["subject"] is None): each["count"] for each in said["groups"]}
    assert found[("terminated", True)] == 1  # a work queue removes terminated messages
    assert sum(each["count"] for each in said["groups"]) == 3
    assert said["gone"] == 1


def test_messages_of_a_stream_that_was_recreated_or_is_gone_count_as_gone(
    say: Say, two_kinds: Letters
) -> None:
    two_kinds.filler.api(f"STREAM.DELETE.{two_kinds.filler.name}")
    gone = say()[1]
    two_kinds.filler.create()
    two_kinds.filler.fill(6)
    other = say()[1]

    assert [(said["letters"], said["gone"]) for said in (gone, other)] == [(4, 4), (4, 4)]
    assert {each["subject"] for each in other["groups"]} == {None}


def test_options_choose_which_advisories_are_read(say: Say, two_kinds: Letters) -> None:
    ended = f"subjects=$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.{two_kinds.filler.name}.>"

    assert say("-o", ended)[1]["letters"] == 2
    assert say("-o", f'startingOffsets={{"{two_kinds.name}": 4}}')[1]["letters"] == 1


def test_a_stream_of_something_else_is_refused_and_leaves_no_file(
    say: Say, letters: Letters, tmp_path: Path
) -> None:
    letters.create()
    letters.filler.fill(3)

    code, _, err = say(str(tmp_path / "dead.parquet"))
    assert (code, (tmp_path / "dead.parquet").exists()) == (0, True)  # there are no advisories yet
    letters.name = letters.filler.name
    code, _, err = say(str(tmp_path / "other.parquet"))

    assert (code, "none of 3 messages tells of a dead letter; name a stream with" in err) == (2, True)
    assert [path.name for path in tmp_path.iterdir() if "other" in path.name] == []


def test_the_report_for_people_and_a_file_that_asks_for_it(
    server: ServerProcess, two_kinds: Letters, tmp_path: Path, command: Callable[..., tuple[int, str, str]]
) -> None:
    file = tmp_path / "dead.toml"
    file.write_text(
        f'[pipeline]\nkind = "dlq-report"\nstream = "{two_kinds.name}"\nsamples = 1\n'
        f'[options]\nservers = "nats://127.0.0.1:{server.port}"\n'
    )

    assert command("validate", "-c", str(file))[0] == 0
    assert command("explain", "-c", str(file))[1].splitlines() == [
        f"{two_kinds.name}: sequences 1 to 4",
        "report to stdout",
    ]
    said = command("run", "-c", str(file))[1].splitlines()

    name, subject = two_kinds.filler.name, two_kinds.filler.subject.decode()
    assert said[0] == f"2 of {name} by tries, {subject}.1: max_deliveries, up to 1 deliveries, sequences 1"
    assert (
        f"1 of {name} by ends, {subject}.2: terminated (bad order), up to 1 deliveries, sequences 2" in said
    )
    assert said[-1] == "4 dead letters, 0 of messages that are gone"


@pytest.mark.parametrize(
    ("argv", "why"),
    [
        (["dead.csv"], "target=dead.csv is not allowed; allowed: a path or URI that ends with .parquet"),
        (["--samples", "many"], "samples=many is not allowed; allowed: a whole number from 0"),
        (["-o", "includeHeaders=raw"], "option includeHeaders is not allowed in dlq-report"),
        (["what://dead.json"], "pyarrow has no file system for it"),
    ],
)
def test_what_makes_no_sense_ends_with_2(say: Say, letters: Letters, argv: list[str], why: str) -> None:
    letters.create()

    code, _, err = say(*argv)

    assert code == 2
    assert why in err


def test_a_server_or_stream_that_is_not_there_ends_with_4_and_2(say: Say) -> None:
    assert say()[0] == 2
    assert main(["dlq-report", "S", "-s", "nats://127.0.0.1:1"]) == 4
