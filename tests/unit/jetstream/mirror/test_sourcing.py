"""Streams that copy from others: the messages that they take, their positions, and the cost for their origins.

Long because mirrors and sources share their scenarios.
"""

from __future__ import annotations

import errno
import json
from itertools import pairwise
from typing import Any

import pytest
from tests.support.disk import FaultyDisk
from tests.unit.jetstream.jsfixture import JetStreamFixture

from pyjs.base.disk import OsDisk
from pyjs.base.nuid import short_hash
from pyjs.config.options import JetStreamOptions, Options
from pyjs.jetstream.config.stream import ExternalStream, StreamSource, SubjectTransformConfig
from pyjs.jetstream.mirror.places import key_of
from pyjs.jetstream.names import identity


def pair(js: JetStreamFixture, storage: str = "file", **more: Any) -> JetStreamFixture:
    """Create a stream O, and a stream C that copies from it."""
    js.add("O", storage=storage, subjects=["o.>"])
    js.add("C", storage=storage, **more)
    return js


def mirror(**more: Any) -> dict[str, Any]:
    return {"mirror": {"name": "O", **more}}


def source(**more: Any) -> dict[str, Any]:
    return {"sources": [{"name": "O", **more}]}


def fill(js: JetStreamFixture, low: int, high: int, subject: str = "o.a", size: int = 0) -> None:
    for number in range(low, high + 1):
        js.publish(subject, (b"%d" % number).ljust(size))


def numbers(js: JetStreamFixture, name: str = "C") -> list[int]:
    return [int(payload) for payload in js.payloads(name)]


def headers(js: JetStreamFixture, seq: int) -> bytes:
    message = js.stream("C").store.get(seq)
    assert message is not None
    return message.headers


# -- what is copied ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("storage", ["file", "memory"])
def test_a_mirror_has_the_sequences_and_times_of_its_origin(storage: str) -> None:
    # given
    js = pair(JetStreamFixture(), storage, **mirror())

    # when
    fill(js, 1, 3)
    js.api("STREAM.MSG.DELETE.O", {"seq": 2})
    fill(js, 4, 4)

    # then
    ours, theirs = js.stream("C").store, js.stream("O").store
    assert numbers(js) == [1, 2, 3, 4]
    for seq in (1, 3, 4):
        mine, other = ours.get(seq), theirs.get(seq)
        assert mine is not None
        assert other is not None
        assert (mine.ts, mine.subject, mine.headers) == (other.ts, other.subject, other.headers)


def test_a_sourced_message_names_its_origin_in_one_header_only() -> None:
    # given
    js = pair(JetStreamFixture(), **source(filter_subject="o.a"))
    ident = identity(js.stream("O").created_ns).decode()

    # when
    js.publish("o.a", A="b", Nats_Expected_Stream="O")
    js.add("D", sources=[{"name": "C"}])

    # then
    assert headers(js, 1) == f"NATS/1.0\r\nA: b\r\nNats-Stream-Source: O 1 o.a > o.a {ident}\r\n\r\n".encode()
    again = js.stream("D").store.get(1)
    ident = identity(js.stream("C").created_ns).decode()
    assert again is not None
    assert again.headers == f"NATS/1.0\r\nA: b\r\nNats-Stream-Source: C 1 > > o.a {ident}\r\n\r\n".encode()


def test_a_header_block_of_conditions_alone_is_none_in_a_mirror() -> None:
    js = pair(JetStreamFixture(), **mirror())
    js.publish("o.a", Nats_Expected_Stream="O")
    assert headers(js, 1) == b""


def test_a_stream_may_be_its_own_source_for_subjects_that_it_does_not_take() -> None:
    # given
    js = JetStreamFixture()
    js.add("C", storage="file", subjects=["in"], sources=[{"name": "C", "filter_subject": "out"}])

    # when
    for _ in range(50):
        js.publish("in", b"x" * 5000)

    # then
    assert js.state("C")["messages"] == 50


def test_the_names_of_sources_are_those_of_their_headers() -> None:
    moved = StreamSource(
        "O", subject_transforms=(SubjectTransformConfig("a", "b"), SubjectTransformConfig("", ""))
    )
    far = StreamSource("O", external=ExternalStream("$JS.X.API", ""))
    assert key_of(StreamSource("O")) == b"O > >"
    assert key_of(moved) == b"O a\x0c> b\x0c>"
    assert key_of(far) == f"O:{short_hash('$JS.X.API')} > >".encode()


def test_a_source_behind_the_domain_of_this_server_is_found() -> None:
    # given
    options = Options()
    options.jetstream = JetStreamOptions(enabled=True, domain="HUB")
    js = JetStreamFixture(options)

    # when
    pair(js, **mirror(external={"api": "$JS.HUB.API", "deliver": ""}))
    fill(js, 1, 2)

    # then
    assert numbers(js) == [1, 2]


def test_many_messages_are_copied_in_order() -> None:
    # given
    js = JetStreamFixture()
    js.add("O", subjects=["o.>"])
    js.user.send(b"".join(b"PUB o.a %d\r\n%d\r\n" % (len(b"%d" % n), n) for n in range(1, 20_001)))

    # when
    for name, more in (("A", mirror()), ("B", source()), ("D", source(opt_start_seq=10_001))):
        js.add(name, **more)
    js.turn()

    # then
    assert numbers(js, "A") == numbers(js, "B") == list(range(1, 20_001))
    assert numbers(js, "D") == list(range(10_001, 20_001))


def test_many_sources_share_a_turn_and_all_get_their_turn() -> None:
    # given
    js = JetStreamFixture()
    names = [f"O{number}" for number in range(20)]
    for name in names:
        js.add(name, subjects=[name])
        js.user.send(b"PUB %b 1\r\n1\r\n" % name.encode() * 2000)
    js.add("C", subjects=["c"])
    stream = js.stream("C")

    # when
    body = json.dumps({"name": "C", "storage": "memory", "sources": [{"name": name} for name in names]})
    request = b"PUB $JS.API.STREAM.UPDATE.C %d\r\n%b\r\n" % (len(body), body.encode())
    js.user.session.receive_data(request)
    counts = [0]
    while js.node.has_work:
        js.node.turn(js.clock.now_ns())
        counts.append(stream.store.msgs)

    # then
    assert max(after - before for before, after in pairwise(counts)) <= 5000
    assert counts[-1] == 40_000
    assert [row["seq"] for row in js.api("STREAM.INFO.C")["sources"]] == [2000] * 20


# -- limits and refusals -----------------------------------------------------------------------------------


@pytest.mark.parametrize("more", [mirror(), source()], ids=["mirror", "source"])
def test_a_full_stream_takes_the_rest_when_there_is_room(more: dict[str, Any]) -> None:
    # given
    js = pair(JetStreamFixture(), max_msgs=2, discard="new", **more)
    fill(js, 1, 5)
    assert numbers(js) == [1, 2]

    # when
    js.api("STREAM.PURGE.C")
    js.turn()
    second = numbers(js)
    js.api("STREAM.UPDATE.C", {"name": "C", "max_msgs": 9, "discard": "new", **more})
    js.turn()

    # then
    assert second == [3, 4]
    assert numbers(js) == [3, 4, 5]


@pytest.mark.parametrize("more", [mirror(), source()], ids=["mirror", "source"])
def test_what_a_full_disk_did_not_take_is_copied_once_there_is_room(more: dict[str, Any]) -> None:
    # given
    disk = FaultyDisk()
    js = JetStreamFixture(disk=disk)
    js.add("O", storage="memory", subjects=["o.>"])
    js.add("C", storage="file", **more)
    fill(js, 1, 2)

    # when
    disk.at, disk.error, disk.forever = disk.calls, errno.ENOSPC, True
    fill(js, 3, 4)
    before = numbers(js)
    disk.at = -1
    for _ in range(4):
        js.advance(seconds=1)
    fill(js, 5, 5)

    # then
    assert before == [1, 2]
    assert numbers(js) == [1, 2, 3, 4, 5]
    if "mirror" in more:
        assert js.stream("C").store.last_seq == 5


class FullAfterOne(OsDisk):
    """Refuses to write messages after `left` more of them; -1: no limit."""

    left = -1

    def write_at(self, fd: int, data: bytes | memoryview, offset: int) -> None:
        if self.left == 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        self.left -= self.left > 0 and b"o.a" in bytes(data)
        super().write_at(fd, data, offset)


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("more", [mirror(), source()], ids=["mirror", "source"])
def test_what_a_disk_took_before_it_was_full_is_not_copied_again(more: dict[str, Any], restart: bool) -> None:
    # given
    disk = FullAfterOne()
    js = JetStreamFixture(disk=disk)
    js.add("O", storage="file", subjects=["o.>"])
    fill(js, 1, 5, size=100_000)

    # when
    disk.left = 1
    js.add("C", storage="file", **more)
    before = numbers(js)
    disk.left = -1
    if restart:
        js = js.restart()
    for _ in range(4):
        js.advance(seconds=1)
    fill(js, 6, 6)

    # then
    assert before == [1, 2]
    assert numbers(js) == [1, 2, 3, 4, 5, 6]


# -- where copying goes on ---------------------------------------------------------------------------------


@pytest.mark.parametrize("more", [mirror(), source()], ids=["mirror", "source"])
def test_nothing_is_copied_twice_after_a_restart(more: dict[str, Any]) -> None:
    # given
    js = pair(JetStreamFixture(), **more)
    fill(js, 1, 3)

    # when
    again = js.restart()
    again.turn()
    fill(again, 4, 4)

    # then
    assert numbers(again) == [1, 2, 3, 4]


@pytest.mark.parametrize("more", [mirror(), source()], ids=["mirror", "source"])
def test_what_was_purged_is_not_copied_again_after_a_restart(more: dict[str, Any]) -> None:
    # given
    js = pair(JetStreamFixture(), **more)
    fill(js, 1, 3)
    js.api("STREAM.PURGE.C")

    # when
    again = js.restart()
    again.turn()
    fill(again, 4, 4)

    # then
    assert numbers(again) == [4]


def test_positions_without_a_file_are_read_from_the_messages() -> None:
    # given
    js = pair(JetStreamFixture(), **source())
    fill(js, 1, 3)
    js.node.stop()
    js.node.disk.remove_tree(f"{js.directory.name}/$G/streams/C/sources")

    # when
    again = js.restart()
    again.turn()
    fill(again, 4, 4)

    # then
    assert numbers(again) == [1, 2, 3, 4]


def test_an_origin_recreated_is_copied_from_its_beginning_by_a_source_and_not_by_a_mirror() -> None:
    # given
    js = pair(JetStreamFixture(), **source())
    js.add("M", **mirror())
    fill(js, 1, 3)

    # when
    js.api("STREAM.DELETE.O")
    gone = js.api("STREAM.INFO.C")["sources"][0]["error"]["err_code"]
    js.advance(seconds=1)
    js.add("O", subjects=["o.>"])
    fill(js, 11, 14)

    # then
    assert gone == 10059
    assert numbers(js, "C") == [1, 2, 3, 11, 12, 13, 14]
    assert numbers(js, "M") == [1, 2, 3, 14]


def test_a_source_that_is_taken_away_and_given_back_goes_on() -> None:
    # given
    js = pair(JetStreamFixture(), subjects=["c"], **source())
    fill(js, 1, 2)

    # when
    js.api("STREAM.UPDATE.C", {"name": "C", "subjects": ["c"]})
    fill(js, 3, 3)
    js.api("STREAM.UPDATE.C", {"name": "C", "subjects": ["c"], **source()})
    js.turn()

    # then
    assert numbers(js) == [1, 2, 3]


def test_a_promoted_mirror_copies_nothing_more_and_takes_publishes() -> None:
    # given
    js = pair(JetStreamFixture(), **mirror())
    fill(js, 1, 2)

    # when
    js.api("STREAM.UPDATE.C", {"name": "C", "subjects": ["c"]})
    fill(js, 3, 3)
    js.publish("c", b"10")

    # then
    assert numbers(js) == [1, 2, 10]
    assert "mirror" not in js.api("STREAM.INFO.C")
    assert numbers(js.restart()) == [1, 2, 10]


def test_a_wide_gap_costs_nothing_and_survives_a_restart() -> None:
    # given
    js = JetStreamFixture()
    js.add("O", subjects=["o.>"])
    js.add("C", storage="file", **mirror(filter_subject="o.a"))
    fill(js, 1, 1)

    # when
    js.stream("O").store.skip_seqs_to(5_000_000)
    fill(js, 2, 2)
    js.publish("o.b", b"0")
    fill(js, 3, 3)
    js = js.restart()

    # then
    store = js.stream("C").store
    found = [store.get(seq) for seq in (1, 5_000_001, 5_000_003)]
    assert [message.payload for message in found if message is not None] == [b"1", b"2", b"3"]
    assert (store.last_seq, store.catalogue.num_deleted()) == (5_000_003, 5_000_000)


# -- origins that let go of their messages -----------------------------------------------------------------


def test_a_work_queue_lets_go_of_what_was_copied_and_nobody_else_wants() -> None:
    # given
    js = JetStreamFixture()
    js.add("O", subjects=["o.>"], retention="workqueue")
    js.add("C", **source(filter_subject="o.a"))

    # when
    fill(js, 1, 2)
    fill(js, 3, 3, "o.b")
    js.turn()

    # then
    assert numbers(js) == [1, 2]
    assert numbers(js, "O") == [3]


def test_a_work_queue_keeps_what_its_own_consumer_or_a_full_copy_still_needs() -> None:
    # given
    js = JetStreamFixture()
    js.add("O", subjects=["o.>"], retention="workqueue")
    js.api("CONSUMER.CREATE.O.c", {"stream_name": "O", "config": {"name": "c", "ack_policy": "explicit"}})
    js.add("C", max_msgs=1, discard="new", **source())
    fill(js, 1, 2)
    assert numbers(js, "O") == [1, 2]

    # when
    js.user.send(b"SUB pulled 7\r\nPUB $JS.API.CONSUMER.MSG.NEXT.O.c pulled 11\r\n" + b'{"batch":2}\r\n')
    for frame in [each for each in js.user.frames() if each.sid == b"7"]:
        js.user.send(b"PUB %b 4\r\n+ACK\r\n" % frame.reply)
    js.turn()
    kept = numbers(js, "O")
    js.api("STREAM.PURGE.C")
    js.turn()
    js.turn()

    # then
    assert kept == [2]
    assert numbers(js, "O") == []


def test_what_is_not_copied_yet_stays_in_a_work_queue_over_a_restart() -> None:
    # given
    js = JetStreamFixture()
    js.add("O", storage="file", subjects=["o.>"], retention="workqueue")
    config = {"name": "c", "durable_name": "c", "ack_policy": "explicit"}
    js.api("CONSUMER.CREATE.O.c", {"stream_name": "O", "config": config})
    js.add("C", storage="file", max_msgs=1, discard="new", **source())
    fill(js, 1, 3)
    js.user.send(b"SUB pulled 7\r\nPUB $JS.API.CONSUMER.MSG.NEXT.O.c pulled 11\r\n" + b'{"batch":3}\r\n')
    for frame in [each for each in js.user.frames() if each.sid == b"7"]:
        js.user.send(b"PUB %b 4\r\n+ACK\r\n" % frame.reply)
    js.turn()

    # when
    again = js.restart()
    again.turn()
    kept = numbers(again, "O")
    again.api("STREAM.PURGE.C")
    again.turn()

    # then
    assert kept == [2, 3]
    assert numbers(again, "O") == [3]
    assert numbers(again) == [2]


def test_a_work_queue_recreated_keeps_what_its_mirror_does_not_copy_over_a_restart() -> None:
    # given
    js = JetStreamFixture()
    js.add("O", storage="file", subjects=["o.>"], retention="workqueue")
    js.add("C", storage="file", **mirror())
    fill(js, 1, 3)
    js.turn()
    js.api("STREAM.DELETE.O")
    js.advance(seconds=1)
    js.add("O", storage="file", subjects=["o.>"], retention="workqueue")
    fill(js, 11, 14)
    js.turn()
    assert numbers(js, "O") == [11, 12, 13]

    # when
    again = js.restart()
    again.turn()

    # then
    assert numbers(again, "O") == [11, 12, 13]
    assert numbers(again) == [1, 2, 3, 14]


def test_a_stream_with_interest_retention_has_interest_by_those_that_copy() -> None:
    # given
    js = JetStreamFixture()
    js.add("O", subjects=["o.>"], retention="interest")
    fill(js, 1, 1)
    js.add("C", **source(filter_subject="o.a"))
    js.turn()

    # when
    fill(js, 2, 2)
    fill(js, 3, 3, "o.b")
    js.api("STREAM.DELETE.C")
    fill(js, 4, 4)

    # then
    assert js.state("O")["messages"] == 0
    assert js.state("O")["last_seq"] == 4


def test_what_is_not_copied_yet_stays_in_an_interest_stream_over_a_restart() -> None:
    # given
    js = JetStreamFixture()
    js.add("O", storage="file", subjects=["o.>"], retention="interest")
    js.add("C", storage="file", max_msgs=1, discard="new", **source())
    js.turn()
    fill(js, 1, 3)
    assert numbers(js, "O") == [2, 3]

    # when
    again = js.restart()
    again.turn()

    # then
    assert numbers(again, "O") == [2, 3]


def test_what_is_not_copied_yet_stays_when_an_origin_gets_interest_retention() -> None:
    # given
    js = JetStreamFixture()
    js.add("O", subjects=["o.>"])
    js.api("CONSUMER.CREATE.O.c", {"stream_name": "O", "config": {"name": "c", "ack_policy": "explicit"}})
    js.add("C", max_msgs=1, discard="new", **source())
    fill(js, 1, 3)
    js.user.send(b"SUB pulled 7\r\nPUB $JS.API.CONSUMER.MSG.NEXT.O.c pulled 11\r\n" + b'{"batch":3}\r\n')
    for frame in [each for each in js.user.frames() if each.sid == b"7"]:
        js.user.send(b"PUB %b 4\r\n+ACK\r\n" % frame.reply)

    # when
    config = {"name": "O", "storage": "memory", "subjects": ["o.>"], "retention": "interest"}
    assert "error" not in js.api("STREAM.UPDATE.O", config)
    js.turn()

    # then
    assert numbers(js, "O") == [2, 3]


def test_a_consumer_counts_right_what_a_copy_brings_and_replaces_at_once() -> None:
    # given
    js = JetStreamFixture()
    js.add("O", subjects=["o.>"])
    js.add("C", max_msgs_per_subject=1, **mirror())
    js.api("CONSUMER.CREATE.C.c", {"stream_name": "C", "config": {"name": "c", "ack_policy": "explicit"}})
    js.turn()

    # when
    published = b"".join(b"PUB o.%b 0\r\n\r\n" % subject for subject in (b"b", b"a", b"a", b"a", b"c"))
    js.user.send(published + b"SUB pulled 7\r\nPUB $JS.API.CONSUMER.MSG.NEXT.C.c pulled 1\r\n1\r\n")
    js.turn()

    # then
    assert [js.stream("C").store.first_seq, js.state("C")["messages"]] == [1, 3]
    info = js.api("CONSUMER.INFO.C.c")
    assert (info["delivered"]["stream_seq"], info["num_pending"]) == (1, 2)


def test_with_sync_always_an_origin_lets_go_when_the_copy_is_on_the_medium() -> None:
    # given
    options = Options()
    options.jetstream = JetStreamOptions(enabled=True, sync_always=True)
    js = JetStreamFixture(options)
    js.add("O", storage="memory", subjects=["o.>"], retention="workqueue")
    js.add("C", storage="file", **source())

    # when
    js.user.send(b"PUB o.a 1\r\n1\r\n")
    js.turn()
    before = numbers(js, "O"), numbers(js)
    stream = js.stream("C")
    job = stream.begin_sync()
    assert job is not None
    stream.finish_sync(job())
    js.turn()

    # then
    assert before == ([1], [1])
    assert numbers(js, "O") == []


# -- direct gets -------------------------------------------------------------------------------------------


def test_a_mirror_answers_direct_gets_of_its_origin_once_it_has_caught_up() -> None:
    # given
    js = JetStreamFixture()
    js.add("O", subjects=["o.>"], allow_direct=True)
    js.add("C", **mirror())
    fill(js, 1, 1)
    js.api("STREAM.DELETE.O")

    # when
    answer = js.ask("$JS.API.DIRECT.GET.O.o.a")
    js.api("STREAM.UPDATE.C", {"name": "C", "storage": "memory", "subjects": ["c"]})
    after = js.ask("$JS.API.DIRECT.GET.O.o.a")

    # then
    assert b"Nats-Stream: C\r\n" in answer.headers
    assert after.headers.startswith(b"NATS/1.0 503")


def test_a_mirror_that_is_held_up_does_not_answer_for_its_origin() -> None:
    # given
    js = JetStreamFixture()
    js.add("O", subjects=["o.>"], allow_direct=True)
    js.add("C", max_msgs=1, discard="new", **mirror())

    # when
    fill(js, 1, 2)
    answers = {js.ask("$JS.API.DIRECT.GET.O.o.a").payload for _ in range(20)}

    # then
    assert answers == {b"2"}
