"""API requests beyond the limits are refused, each client at its own expense; the refusals are reported."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.jetstream.jsfixture import JetStreamFixture

from pyjs.config.options import (
    AccountJetStreamOptions,
    AccountOptions,
    JetStreamOptions,
    Options,
    UserOptions,
)
from pyjs.core.auth.identity import Sender
from pyjs.core.sink import Request
from pyjs.jetstream import admission
from pyjs.jetstream.admission import Tally, is_info, owners_of
from pyjs.testing import RawClient

if TYPE_CHECKING:
    from collections.abc import Generator

    from pyjs.core.chore import Step

INFO = "STREAM.INFO.S"
PURGE = "STREAM.PURGE.S"
TOO_MANY = "JetStream system temporarily unavailable: too many requests wait"
ONE, OTHER, FOREIGN = ("A", "a1"), ("A", "a2"), ("B", "b1")


def login(user: str) -> bytes:
    return json.dumps({"user": user, "pass": user, "verbose": False, "headers": True}).encode()


class Flood(JetStreamFixture):
    """A server on which few requests may wait, and clients that send requests without waiting."""

    def __init__(self, **limits: Any) -> None:
        options = Options(jetstream=JetStreamOptions(enabled=True, domain="hub", **limits))
        account = AccountJetStreamOptions()
        options.accounts["A"] = AccountOptions("A", (UserOptions("a", "a"),), account)
        options.accounts["$SYS"] = AccountOptions("$SYS", (UserOptions("s", "s"),))
        super().__init__(options=options)
        self.user = self.asker()
        self.add("S", subjects=["s.*"])

    def asker(self, user: str = "a") -> RawClient:
        client = self.client(login(user))
        client.send(b"SUB _I.> 1\r\n")
        client.take()
        return client

    def send(
        self, client: RawClient, endpoint: str, count: int, body: bytes = b"", reply: bytes = b"_I.a"
    ) -> None:
        """Send requests that are not handled before the next turn."""
        line = b"PUB $JS.API.%b %b %d\r\n%b\r\n" % (endpoint.encode(), reply, len(body), body)
        client.session.receive_data(line * count)

    def answers(self, client: RawClient) -> list[str]:
        """Return the descriptions of the errors that a client got, "" for each answer without an error."""
        self.turn()
        answers: list[dict[str, Any]] = [json.loads(payload) for payload in client.payloads()]
        return [answer.get("error", {}).get("description", "") for answer in answers]

    @property
    def admission(self) -> admission.Admission:
        assert self.node.jetstream is not None
        return self.node.jetstream.shared.admission


def is_idle(js: Flood) -> bool:
    found = js.admission
    return not (found.inflight or found.infos.total or found.changes.total or found.sizes.total)


def test_requests_beyond_the_limit_get_an_error_and_the_others_their_answers() -> None:
    js = Flood(request_queue_limit=3)
    js.send(js.user, PURGE, 5)
    assert sorted(js.answers(js.user)) == ["", "", "", TOO_MANY, TOO_MANY]
    assert is_idle(js)
    js.send(js.user, PURGE, 3)
    assert js.answers(js.user) == [""] * 3


def test_a_refusal_has_the_type_of_the_answer_and_the_error_of_an_unavailable_service() -> None:
    js = Flood(request_queue_limit=1)
    js.send(js.user, PURGE, 2)
    js.turn()
    refusal = next(json.loads(each) for each in js.user.payloads() if b"error" in each)
    error = {"code": 503, "err_code": 10008, "description": TOO_MANY}
    assert refusal == {"purged": 0, "type": "io.nats.jetstream.api.v1.stream_purge_response", "error": error}


def test_requests_for_information_have_a_limit_of_their_own() -> None:
    js = Flood(request_queue_limit=1, info_queue_limit=4)
    js.send(js.user, PURGE, 2)
    js.send(js.user, INFO, 5)
    assert sorted(js.answers(js.user)) == [""] * 5 + [TOO_MANY] * 2
    same = Flood(request_queue_limit=2)
    same.send(same.user, INFO, 3)
    assert sorted(same.answers(same.user)) == ["", "", TOO_MANY]


def test_the_bytes_of_all_waiting_requests_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "SIZE_MAX", 10_000)
    js = Flood()
    js.send(js.user, PURGE, 4, body=b'{"filter":"s.%b"}' % (b"x" * 4_000))
    assert js.answers(js.user).count(TOO_MANY) == 1
    assert is_idle(js)


def test_a_flood_of_one_client_does_not_refuse_the_request_of_another() -> None:
    js = Flood(request_queue_limit=8)
    js.send(js.user, PURGE, 100)
    quiet, foreign = js.asker(), js.asker()
    js.send(quiet, PURGE, 1, reply=b"_I.quiet")
    js.send(foreign, PURGE, 1, reply=b"_I.quiet")
    assert js.admission.changes.total <= 12
    js.turn()
    replies = [frame for frame in quiet.frames() if frame.subject == b"_I.quiet"]
    assert len(replies) == 2
    assert not any(b"error" in frame.payload for frame in replies)


def test_requests_at_the_gate_of_a_stream_count_until_they_are_answered() -> None:
    js = Flood(request_queue_limit=4)
    js.add("F", storage="file")
    js.hold_jobs = True
    js.send(js.user, "STREAM.UPDATE.F", 1, b'{"name":"F","storage":"file","max_msgs":5}')
    js.turn()
    js.send(js.user, "STREAM.PURGE.F", 6)
    assert js.answers(js.user) == [TOO_MANY] * 3
    assert js.admission.inflight == 4
    js.hold_jobs = False
    assert js.answers(js.user) == [""] * 4
    assert is_idle(js)


def test_a_request_whose_answer_waits_for_a_sync_counts_until_it_is_answered() -> None:
    js = Flood(request_queue_limit=2, sync_always=True)
    js.add("F", storage="file", subjects=["f"])
    js.user.send(b"PUB f 1\r\nx\r\n")
    js.send(js.user, "STREAM.PURGE.F", 1)
    js.turn()
    js.send(js.user, "STREAM.PURGE.F", 2)
    assert js.answers(js.user) == [TOO_MANY]
    assert js.node.jetstream is not None
    stream = js.node.jetstream.accounts["A"].streams["F"]
    while (job := stream.begin_sync()) is not None:
        stream.finish_sync(job())
    assert js.answers(js.user) == [""] * 2
    assert is_idle(js)


def test_a_request_without_a_reply_subject_is_dropped_and_counted() -> None:
    js = Flood(request_queue_limit=1)
    js.user.session.receive_data(b"PUB $JS.API.STREAM.PURGE.S 0\r\n\r\n" * 3)
    js.turn()
    assert js.user.payloads() == []
    assert [line for line in js.log.lines if "limit" in line[1]] == warned(2)
    assert is_idle(js)


def warned(count: int) -> list[tuple[str, str]]:
    return [("WRN", f"JetStream API queue limit reached, refused {count} requests")]


def test_refusals_are_logged_and_published_once_a_second() -> None:
    js = Flood(request_queue_limit=1)
    system = js.client(login("s"))
    system.send(b"SUB $JS.EVENT.ADVISORY.API.LIMIT_REACHED 1\r\n")
    system.take()
    for _ in range(3):
        js.send(js.user, PURGE, 3)
        js.turn()
    first = json.loads(system.payloads()[0])
    assert {key: first[key] for key in ("type", "domain", "dropped")} == {
        "type": "io.nats.jetstream.advisory.v1.api_limit_reached", "domain": "hub", "dropped": 2,
    }  # fmt: skip
    assert first["server"] == js.node.server_name
    js.advance(seconds=1)
    assert [json.loads(each)["dropped"] for each in system.payloads()] == [4]
    js.advance(seconds=2)
    js.send(js.user, PURGE, 2)
    js.turn()
    assert [json.loads(each)["dropped"] for each in system.payloads()] == [1]


def test_a_request_that_another_server_has_passed_on_counts_until_its_last_step() -> None:
    js = Flood(request_queue_limit=1)
    account, refused = js.user.session.account, []

    def steps() -> Generator[None, None, None]:
        yield

    def begun(reply: bytes) -> Generator[Step, None, None]:
        request = Request(lambda _: None, b"$JS.API.STREAM.PURGE.S", reply, is_routed=True)
        return js.admission.counted(account, request, steps(), lambda: refused.append(reply))

    first, second = begun(b"_I.1"), begun(b"_I.2")
    next(first)
    assert js.admission.inflight == 1
    assert [*second] == []
    assert refused == [b"_I.2"]
    assert [*first] == []
    assert is_idle(js)


def test_a_client_of_another_server_or_worker_is_known_by_its_inbox_or_its_id() -> None:
    js = Flood()
    account = js.user.session.account
    one, other = (
        Request(lambda _: None, b"$JS.API.INFO", reply, is_routed=True) for reply in (b"_I.a.1", b"_I.a.2")
    )
    assert owners_of(account, one) == owners_of(account, other) == (account, (b"_I.a",))
    sender = Sender({"server": "w2", "id": 7})
    sent = Request(lambda _: None, b"$JS.API.INFO", b"", session=sender)  # type: ignore[arg-type]
    assert owners_of(account, sent) == (account, ("w2", "7"))


def test_a_connection_and_an_account_with_few_requests_have_a_reserve() -> None:
    tally = Tally()
    for _ in range(100):
        tally.add(ONE, 1)
    assert not tally.has_room(100, ONE)
    while tally.has_room(100, OTHER):
        tally.add(OTHER, 1)
    assert tally.total == 113  # the rest of the reserve is for other connections
    assert tally.has_room(100, ("A", "a3"))
    while tally.has_room(100, FOREIGN):
        tally.add(FOREIGN, 1)
    assert tally.total < 150


def test_no_number_of_connections_and_accounts_exceeds_the_limit_by_more_than_half() -> None:
    tally = Tally()
    for number in range(2_000):
        owners = number % 50, ("connection", number % 700)
        if tally.has_room(100, owners):
            tally.add(owners, 1)
    assert 100 <= tally.total < 150


def test_a_tally_forgets_owners_without_requests() -> None:
    tally = Tally()
    tally.add(ONE, 2)
    tally.add(OTHER, 1)
    tally.add(ONE, -2)
    tally.add(OTHER, -1)
    assert (tally.total, tally._of) == (0, {})


@pytest.mark.parametrize(
    ("subject", "expected"),
    [
        (b"$JS.API.INFO", True),
        (b"$JS.hub.API.STREAM.LIST", True),
        (b"$JS.API.CONSUMER.INFO.S.C", True),
        (b"$JS.API.STREAM.INFO.API.", True),
        (b"$JS.API.STREAM.PURGE.S", False),
        (b"$JS.API.CONSUMER.CREATE.S", False),
        (b"$JS", False),
    ],
)
def test_requests_for_information_are_known_by_their_subject(subject: bytes, expected: bool) -> None:
    assert is_info(subject) is expected
