"""$JS.API: envelopes, errors and the answers of the stream and message endpoints."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.unit.jetstream.jsfixture import JetStreamFixture

from pyjs.config.options import (
    AccountJetStreamOptions,
    AccountOptions,
    JetStreamOptions,
    Options,
    UserOptions,
)

NO_LEVEL = b"NATS/1.0\r\nNats-Required-Api-Level: 6\r\n\r\n"


@pytest.fixture
def js() -> JetStreamFixture:
    return JetStreamFixture()


# -- the envelope ------------------------------------------------------------------------------------------------


def test_an_answer_begins_with_its_type(js: JetStreamFixture) -> None:
    answer = js.ask("$JS.API.STREAM.NAMES")
    assert answer.payload == (
        b'{"type":"io.nats.jetstream.api.v1.stream_names_response",'
        b'"total":0,"offset":0,"limit":1024,"streams":null}'
    )


def test_an_error_comes_second(js: JetStreamFixture) -> None:
    answer = js.ask("$JS.API.STREAM.INFO.NOPE")
    assert answer.payload == (
        b'{"type":"io.nats.jetstream.api.v1.stream_info_response",'
        b'"error":{"code":404,"err_code":10059,"description":"stream not found"},"total":0,"offset":0,"limit":0}'
    )


@pytest.mark.parametrize(
    "words", ["FOO", "STREAM.FOO", "STREAM.INFO", "STREAM.INFO.A.B", "META.LEADER.STEPDOWN"]
)
def test_an_unknown_subject_gets_no_answer(js: JetStreamFixture, words: str) -> None:
    js.user.send(b"SUB _INBOX.> 1\r\nPUB $JS.API.%b _INBOX.a 0\r\n\r\n" % words.encode())
    assert js.user.take() == b""


def test_a_reset_of_an_unknown_consumer_gets_no_answer(js: JetStreamFixture) -> None:
    js.add("S", subjects=["s"])
    js.user.send(b"SUB _INBOX.> 1\r\nPUB $JS.API.CONSUMER.RESET.S.no _INBOX.a 0\r\n\r\n")
    assert js.user.take() == b""


@pytest.mark.parametrize("words", ["CONSUMER.MSG.NEXT.A.b", "DIRECT.GET.A", "DIRECT.GET.A.x"])
def test_pulls_and_direct_gets_without_target_have_no_responders(js: JetStreamFixture, words: str) -> None:
    assert js.ask(f"$JS.API.{words}").headers.startswith(b"NATS/1.0 503\r\n")


def test_a_higher_api_level_is_refused(js: JetStreamFixture) -> None:
    refusal = (412, 10185, "JetStream minimum api level required")
    assert js.error("INFO", b"", NO_LEVEL) == refusal
    assert js.error("INFO", b"", NO_LEVEL.replace(b"6", b"x")) == refusal
    assert "error" not in js.api("INFO", b"", NO_LEVEL.replace(b"6", b"5"))


def test_a_domain_has_its_own_prefix() -> None:
    js = JetStreamFixture(Options(jetstream=JetStreamOptions(enabled=True, domain="HUB")))
    js.add("S", subjects=["s"], allow_direct=True)

    assert js.publish("s") == {"stream": "S", "domain": "HUB", "seq": 1}
    assert json.loads(js.ask("$JS.HUB.API.STREAM.INFO.S").payload)["domain"] == "HUB"
    assert js.ask("$JS.HUB.API.DIRECT.GET.S.s").payload == b"x"
    assert js.api("INFO")["domain"] == "HUB"
    assert "domain" not in js.api("STREAM.CREATE.T", {"name": "T", "storage": "memory"})


def test_an_account_without_jetstream_is_told() -> None:
    options = Options(jetstream=JetStreamOptions(enabled=True))
    options.accounts = {
        "A": AccountOptions("A", (UserOptions("a", "a"),), AccountJetStreamOptions(max_streams=1)),
        "B": AccountOptions("B", (UserOptions("b", "b"),)),
    }
    js = JetStreamFixture(options)
    a = js.client(b'{"user":"a","pass":"a","verbose":false,"headers":true,"no_responders":true}')
    b = js.client(b'{"user":"b","pass":"b","verbose":false,"headers":true,"no_responders":true}')

    answer = json.loads(a.request(b"$JS.API.INFO").payload)
    refusal = json.loads(b.request(b"$JS.API.INFO").payload)

    assert answer["limits"]["max_streams"] == 1
    assert refusal["type"].endswith("account_info_response")
    assert refusal["error"]["err_code"] == 10039


def test_the_counters_are_those_of_the_engine(js: JetStreamFixture) -> None:
    js.add("S", subjects=["s"])
    js.error("STREAM.INFO.NOPE")
    js.publish("s")
    before = js.api("INFO")["api"]

    js.api(
        "STREAM.MSG.GET.S", {"seq": 1}
    )  # as nats-server counts: not counted, and a failed removal is no error
    js.error("STREAM.MSG.DELETE.S", {"seq": 9})
    after = js.api("INFO")["api"]

    assert before == {"level": 5, "total": 2, "errors": 1}
    assert after == {"level": 5, "total": 4, "errors": 1}
    assert js.node.jetstream
    assert (js.node.jetstream.shared.api_total, js.node.jetstream.shared.api_errors) == (5, 1)


def test_unknown_fields_pass_when_not_strict() -> None:
    js = JetStreamFixture(Options(jetstream=JetStreamOptions(enabled=True, strict=False)))
    assert js.api("STREAM.CREATE.S", {"name": "S", "storage": "memory", "foo": 1})["did_create"] is True


# -- streams -----------------------------------------------------------------------------------------------------


def test_creating_twice_confirms_or_refuses(js: JetStreamFixture) -> None:
    first = js.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s"], "storage": "memory"})
    again = js.api(
        "STREAM.CREATE.S",
        {"name": "S", "subjects": ["s"], "storage": "memory", "metadata": {"_nats.ver": "1"}},
    )

    assert first["did_create"]
    assert again["did_create"]
    assert first["created"] == again["created"]
    assert js.error("STREAM.CREATE.S", {"name": "S"})[1] == 10058


def test_subjects_belong_to_one_stream(js: JetStreamFixture) -> None:
    js.add("A", subjects=["a.>"])
    assert js.error("STREAM.CREATE.B", {"name": "B", "subjects": ["b", "a.*.c"]}) == (
        400,
        10065,
        "subjects overlap with an existing stream",
    )


@pytest.mark.parametrize(
    ("body", "refusal"),
    [
        (b"", (400, 10056, "stream name in subject does not match request")),
        (
            b"x",
            (400, 10025, "invalid JSON: invalid character 'x' looking for beginning of value at offset 1"),
        ),
        (b'{"name":"S","foo":1}', (400, 10025, 'invalid JSON: json: unknown field "foo"')),
        (b'{"name":"S","sealed":true}', (500, 10052, "stream configuration for create can not be sealed")),
        (b'{"name":"S","num_replicas":3}', (500, 10074, "replicas > 1 not supported in non-clustered mode")),
        (b'{"name":"S","mirror":{"name":"S"}}', (500, 10052, "detected cycle")),
    ],
)
def test_creation_is_refused(js: JetStreamFixture, body: bytes, refusal: tuple[int, int, str]) -> None:
    assert js.error("STREAM.CREATE.S", body) == refusal


def test_a_name_with_a_slash(js: JetStreamFixture) -> None:
    assert js.error("STREAM.CREATE.A/B", {"name": "A/B"})[1] == 10128


def test_an_update_changes_subjects_and_keeps_messages(js: JetStreamFixture) -> None:
    js.add("S", subjects=["a", "b"])
    js.publish("a")

    answer = js.api("STREAM.UPDATE.S", {"name": "S", "subjects": ["b", "c"], "storage": "memory"})

    assert answer["config"]["subjects"] == ["b", "c"]
    assert "did_create" not in answer
    assert js.publish("c") == {"stream": "S", "seq": 2}
    assert js.ask("a", b"x").headers.startswith(b"NATS/1.0 503")


def test_an_update_evicts_at_once(js: JetStreamFixture) -> None:
    js.add("S", subjects=["s"])
    for i in range(4):
        js.publish("s", b"%d" % i)
    state = js.api("STREAM.UPDATE.S", {"name": "S", "subjects": ["s"], "storage": "memory", "max_msgs": 2})[
        "state"
    ]
    assert (state["messages"], state["first_seq"]) == (2, 3)
    assert js.payloads("S") == [b"2", b"3"]


def test_update_of_nothing(js: JetStreamFixture) -> None:
    assert js.error("STREAM.UPDATE.S", {"name": "S"})[1] == 10059
    assert js.error("STREAM.UPDATE.S", {"name": "T"})[1] == 10056
    assert js.error("STREAM.UPDATE.S", b"")[1] == 10052


def test_deleting_a_stream(js: JetStreamFixture) -> None:
    js.add("S", subjects=["s"])
    assert js.error("STREAM.DELETE.S", b"x") == (400, 10038, "expected an empty request payload")
    assert js.api("STREAM.DELETE.S", b" {} ") == {"success": True}
    assert js.error("STREAM.DELETE.S")[1] == 10059
    assert js.ask("s", b"x").headers.startswith(b"NATS/1.0 503")


def test_info_with_subjects_and_gaps(js: JetStreamFixture) -> None:
    js.add("S", subjects=["s.>"])
    for subject in ("s.a", "s.b", "s.a", "s.c"):
        js.publish(subject)
    js.api("STREAM.MSG.DELETE.S", {"seq": 2})

    answer = js.api("STREAM.INFO.S", {"subjects_filter": "s.*", "deleted_details": True})
    paged = js.api("STREAM.INFO.S", {"subjects_filter": "s.*", "offset": 1})
    none = js.api("STREAM.INFO.S", {"subjects_filter": "zz"})

    assert (answer["total"], answer["offset"], answer["limit"]) == (2, 0, 100_000)
    assert answer["state"]["subjects"] == {"s.a": 2, "s.c": 1}
    assert (answer["state"]["num_deleted"], answer["state"]["deleted"]) == (1, [2])
    assert answer["cluster"] == {"leader": js.node.server_name}
    assert paged["state"]["subjects"] == {"s.c": 1}
    assert (none["total"], none["limit"]) == (0, 0)
    assert "subjects" not in none["state"]


def test_an_empty_stream_has_zero_times(js: JetStreamFixture) -> None:
    js.add("S", subjects=["s"])
    assert js.state("S") == {
        "messages": 0,
        "bytes": 0,
        "first_seq": 0,
        "first_ts": "0001-01-01T00:00:00Z",
        "last_seq": 0,
        "last_ts": "0001-01-01T00:00:00Z",
        "consumer_count": 0,
    }


def test_names_and_list_are_sorted_and_paged(js: JetStreamFixture) -> None:
    for name in ("B", "A", "C"):
        js.add(name, subjects=[name.lower()])

    assert js.api("STREAM.NAMES")["streams"] == ["A", "B", "C"]
    assert js.api("STREAM.NAMES", {"offset": 2}) == {"total": 3, "offset": 2, "limit": 1024, "streams": ["C"]}
    assert js.api("STREAM.NAMES", {"offset": 9})["offset"] == 3
    assert js.api("STREAM.NAMES", {"subject": "b"})["streams"] == ["B"]
    listed = js.api("STREAM.LIST", {"subject": "*", "offset": 1})
    assert [each["config"]["name"] for each in listed["streams"]] == ["B", "C"]
    assert listed["streams"][0]["config"]["metadata"] == {"_nats.req.level": "0"}
    assert "cluster" not in listed["streams"][0]


@pytest.mark.parametrize("words", ["LEADER.STEPDOWN.S", "PEER.REMOVE.S", "PEER.EVACUATE.S", "CANCEL_MOVE.S"])
def test_cluster_calls_are_refused(js: JetStreamFixture, words: str) -> None:
    assert js.error(f"STREAM.{words}") == (503, 10010, "JetStream clustering support required")


# -- purge and single messages -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "purged", "left"),
    [
        (b"", 4, []),
        ({"filter": "s.a"}, 2, [b"2", b"4"]),
        ({"seq": 3}, 2, [b"3", b"4"]),
        ({"keep": 1}, 3, [b"4"]),
        ({"filter": "s.a", "keep": 1}, 1, [b"2", b"3", b"4"]),
        ({"filter": "s.b", "seq": 3}, 1, [b"1", b"3", b"4"]),
        ({"seq": 50}, 4, []),
    ],
)
def test_purges(js: JetStreamFixture, body: Any, purged: int, left: list[bytes]) -> None:
    js.add("S", subjects=["s.*"])
    for subject, payload in (("s.a", b"1"), ("s.b", b"2"), ("s.a", b"3"), ("s.b", b"4")):
        js.publish(subject, payload)
    assert js.api("STREAM.PURGE.S", body) == {"success": True, "purged": purged}
    assert js.payloads("S") == left


def test_a_purge_beyond_the_end_moves_the_next_sequence(js: JetStreamFixture) -> None:
    js.add("S", subjects=["s"])
    js.api("STREAM.PURGE.S", {"seq": 100})
    assert js.publish("s")["seq"] == 100


def test_refused_purges(js: JetStreamFixture) -> None:
    js.add("S", subjects=["s"], deny_purge=True)
    assert js.error("STREAM.PURGE.S", {"seq": 1, "keep": 1}) == (400, 10003, "bad request")
    assert js.error("STREAM.PURGE.S") == (500, 10110, "stream purge not permitted")
    assert js.error("STREAM.PURGE.NOPE")[1] == 10059


def test_getting_messages(js: JetStreamFixture) -> None:
    js.add("S", subjects=["s.>"])
    js.publish("s.a", b"1", A="b")
    js.advance(seconds=5)
    js.publish("s.b", b"")

    first = js.api("STREAM.MSG.GET.S", {"seq": 1})["message"]
    assert list(first) == ["subject", "seq", "hdrs", "data", "time"]
    assert first["data"] == "MQ=="
    assert "hdrs" not in js.api("STREAM.MSG.GET.S", {"seq": 1, "no_hdr": True})["message"]
    for body in (
        {"seq": 2},
        {"last_by_subj": "s.*"},
        {"next_by_subj": "s.b"},
        {"next_by_subj": "s.*", "seq": 2},
        {"start_time": "2023-11-14T22:13:21Z"},
        {"next_by_subj": "s.>", "start_time": "2023-11-14T22:13:21Z"},
    ):
        message = js.api("STREAM.MSG.GET.S", body)["message"]
        assert (message["seq"], "data" in message) == (2, False)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        {"seq": 0},
        {"seq": 1, "last_by_subj": "s"},
        {"seq": 1, "start_time": "2023-11-14T22:13:21Z"},
        {"last_by_subj": "s", "next_by_subj": "s"},
        {"seq": 1, "batch": 2},
    ],
)
def test_unclear_message_requests(js: JetStreamFixture, body: Any) -> None:
    js.add("S", subjects=["s"])
    assert js.error("STREAM.MSG.GET.S", body) == (400, 10003, "bad request")


def test_messages_that_are_not_there(js: JetStreamFixture) -> None:
    js.add("S", subjects=["s"])
    for body in ({"seq": 1}, {"last_by_subj": "s"}, {"start_time": "2030-01-01T00:00:00Z"}):
        assert js.error("STREAM.MSG.GET.S", body) == (404, 10037, "no message found")


def test_deleting_messages(js: JetStreamFixture) -> None:
    js.add("S", subjects=["s"])
    for _ in range(3):
        js.publish("s")

    assert js.api("STREAM.MSG.DELETE.S", {"seq": 2}) == {"success": True}
    assert js.error("STREAM.MSG.DELETE.S", {"seq": 2}) == (400, 10043, "sequence 2 not found")
    assert js.api("STREAM.MSG.DELETE.S", {"seq": 1, "no_erase": True}) == {"success": True}
    for seq in (2, 9, 0):  # a file store answers differently: scenarios/stream/message_delete_not_there.txt
        assert js.error("STREAM.MSG.DELETE.S", {"seq": seq}) == (400, 10043, f"sequence {seq} not found")
    assert js.error("STREAM.MSG.DELETE.S") == (400, 10003, "bad request")
    assert js.state("S")["first_seq"] == 3


def test_deletion_can_be_denied(js: JetStreamFixture) -> None:
    js.add("S", subjects=["s"], deny_delete=True)
    js.publish("s")
    assert js.error("STREAM.MSG.DELETE.S", {"seq": 1}) == (500, 10057, "message delete not permitted")


# -- direct gets -------------------------------------------------------------------------------------------------


def test_direct_gets(js: JetStreamFixture) -> None:
    js.add("S", subjects=["s.>"], allow_direct=True)
    js.publish("s.a", b"1", A="b")
    js.publish("s.b", b"2")

    answer = js.ask("$JS.API.DIRECT.GET.S", {"seq": 1})
    last = js.ask("$JS.API.DIRECT.GET.S.s.b")

    assert answer.payload == b"1"
    assert answer.headers == (
        b"NATS/1.0\r\nA: b\r\nNats-Stream: S\r\nNats-Subject: s.a\r\nNats-Sequence: 1\r\n"
        b"Nats-Time-Stamp: 2023-11-14T22:13:20Z\r\n\r\n"
    )
    assert last.payload == b"2"
    assert b"Nats-Sequence: 2\r\n" in last.headers
    assert js.ask("$JS.API.DIRECT.GET.S", {"last_by_subj": "s.*"}).payload == b"2"
    assert js.ask("$JS.API.DIRECT.GET.S", {"next_by_subj": "s.a"}).payload == b"1"
    assert js.ask("$JS.API.DIRECT.GET.S", {"seq": 1, "no_hdr": True}).headers == b""


@pytest.mark.parametrize("storage", ["file", "memory"])
def test_the_short_way_to_the_last_message_answers_as_the_long_one(
    js: JetStreamFixture, storage: str
) -> None:
    js.add("S", subjects=["s.>"], allow_direct=True, storage=storage)
    for at in range(8):
        js.clock.advance(at * 41_985_490)
        headers = {"Some_Key": "x" * at} if at % 2 else {}
        js.publish(f"s.{at % 5}", b"y" * at * 10_000, **headers)

    for at in [*range(5), *range(5)]:
        short = js.ask(f"$JS.API.DIRECT.GET.S.s.{at}")
        assert short == js.ask("$JS.API.DIRECT.GET.S", {"last_by_subj": f"s.{at}"})
        assert b"Nats-Sequence: " in short.headers
    assert js.ask("$JS.API.DIRECT.GET.S.s.>").payload == b"y" * 70_000
    assert js.ask("$JS.API.DIRECT.GET.S.s.9").headers == b"NATS/1.0 404 Message Not Found\r\n\r\n"


@pytest.mark.parametrize(
    ("subject", "body", "status"),
    [
        ("S", b"", b"408 Empty Request"),
        ("S", b"{}", b"408 Empty Request"),
        ("S", b"zz", b"408 Malformed Request"),
        ("S", b'{"seq":1,"last_by_subj":"s"}', b"408 Bad Request"),
        ("S", b'{"seq":9}', b"404 Message Not Found"),
        ("S", b'{"multi_last":["zz"]}', b"404 No Results"),
        ("S.zz", b"", b"404 Message Not Found"),
        ("S.s", b'{"seq":1}', b"408 Bad Request"),
    ],
)
def test_direct_get_statuses(js: JetStreamFixture, subject: str, body: bytes, status: bytes) -> None:
    js.add("S", subjects=["s"], allow_direct=True)
    js.publish("s")
    assert js.ask(f"$JS.API.DIRECT.GET.{subject}", body).headers == b"NATS/1.0 %b\r\n\r\n" % status


def test_direct_get_needs_permission_from_the_stream(js: JetStreamFixture) -> None:
    js.add("S", subjects=["s"], allow_direct=True)
    js.publish("s")
    assert (
        js.ask("$JS.API.DIRECT.GET.S", {"seq": 1}, NO_LEVEL).headers
        == b"NATS/1.0 412 Required Api Level\r\n\r\n"
    )

    js.api("STREAM.UPDATE.S", {"name": "S", "subjects": ["s"], "storage": "memory", "allow_direct": False})

    assert js.ask("$JS.API.DIRECT.GET.S", {"seq": 1}).headers.startswith(b"NATS/1.0 503")


def test_a_batch_ends_with_its_status(js: JetStreamFixture) -> None:
    js.add("S", subjects=["s.*"], allow_direct=True)
    for subject in ("s.a", "s.b", "s.a"):
        js.publish(subject, subject.encode())
    js.user.send(b"SUB _INBOX.b 9\r\n")

    body = b'{"seq":1,"batch":2,"next_by_subj":"s.a"}'
    js.user.send(b"PUB $JS.API.DIRECT.GET.S _INBOX.b %d\r\n%b\r\n" % (len(body), body))
    first, second, end = js.user.frames()

    assert first.headers.endswith(b"Nats-Num-Pending: 1\r\nNats-Last-Sequence: 0\r\n\r\n")
    assert second.headers.endswith(b"Nats-Num-Pending: 0\r\nNats-Last-Sequence: 1\r\n\r\n")
    assert end.headers == b"NATS/1.0 204 EOB\r\nNats-Num-Pending: 0\r\nNats-Last-Sequence: 3\r\n\r\n"


def test_the_last_of_several_subjects(js: JetStreamFixture) -> None:
    js.add("S", subjects=["s.*"], allow_direct=True)
    for subject in ("s.a", "s.b", "s.a"):
        js.publish(subject, subject.encode())
    js.user.send(b"SUB _INBOX.b 9\r\n")

    body = b'{"multi_last":["s.*"]}'
    js.user.send(b"PUB $JS.API.DIRECT.GET.S _INBOX.b %d\r\n%b\r\n" % (len(body), body))
    first, second, end = js.user.frames()

    assert (first.payload, second.payload) == (b"s.b", b"s.a")
    assert end.headers.startswith(b"NATS/1.0 204 EOB\r\nNats-Num-Pending: 0\r\nNats-Last-Sequence: 3\r\n")
    assert b"Nats-UpTo-Sequence: 3\r\n" in end.headers


def test_a_snapshot_is_an_archive_that_a_restore_takes(js: JetStreamFixture) -> None:
    # given
    js.add("S", subjects=["s"])
    js.user.send(b"PUB s 5\r\nbread\r\nSUB deliver 9\r\n")
    made = js.error("STREAM.RESTORE.S", {"config": {"name": "S"}, "state": {}})
    # when
    answer = js.api("STREAM.SNAPSHOT.S", {"deliver_subject": "deliver"})
    # then
    assert made[:2] == (400, 10130)
    assert answer["state"]["messages"] == 1
    assert answer["config"]["name"] == "S"
