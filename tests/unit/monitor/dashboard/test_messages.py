"""The message browser: bounded, and off unless the operator wants it."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
from tests.unit.monitor.conftest import finish
from tests.unit.monitor.dashboard.conftest import Dash, jetstream_options

from pyjs.base.errors import NotNow
from pyjs.config.options import HttpLogin
from pyjs.monitor.dashboard import messages
from pyjs.monitor.own.consumer_reading import SEARCHED

PAGE = "messages?acc=$G&stream=A"
ONE = "message?acc=$G&stream=A"


def seqs(page: dict[str, list[dict[str, int]]]) -> list[int]:
    return [row["seq"] for row in page["messages"]]


@pytest.fixture
def filled(dash: Dash) -> Dash:
    dash.stream("A")
    for number in range(1, 7):
        dash.publish(f"a.{number % 2}", b"Payload %d" % number)
    return dash


@pytest.mark.parametrize("login", [None, HttpLogin(token="t")])
def test_it_is_off_without_a_login_or_without_the_option(tmp_path: Path, login: HttpLogin | None) -> None:
    options = jetstream_options(tmp_path)
    options.monitoring.login = login
    dash = Dash(options)
    dash.node.start_jetstream()
    dash.stream("A")

    for view in (PAGE, f"{ONE}&seq=1"):
        answer = dash.ask(f"/dashboard/data/{view}")
        assert (answer.status, answer.body.decode()) == (403, f"{messages.OFF}\n")
    assert dash.view("overview")["server"]["messages"] is False


def test_the_newest_messages_are_first(filled: Dash) -> None:
    page = filled.view(PAGE + "&limit=4")

    assert (seqs(page), page["next"], page["scanned"]) == ([6, 5, 4, 3], 2, 4)
    assert (page["msgs"], page["first_seq"], page["last_seq"]) == (6, 1, 6)
    row = page["messages"][0]
    assert (row["subject"], row["size"], row["headers"], row["preview"]) == ("a.0", 9, 0, "Payload 6")
    assert seqs(filled.view(PAGE + "&limit=4&seq=2")) == [2, 1]


def test_a_page_can_go_forward(filled: Dash) -> None:
    page = filled.view(PAGE + "&forward=true&limit=4")

    assert (seqs(page), page["next"]) == ([1, 2, 3, 4], 5)
    page = filled.view(PAGE + "&forward=true&seq=5")
    assert (seqs(page), page["next"]) == ([5, 6], 0)


@pytest.mark.parametrize("forward", ["", "&forward=true"])
@pytest.mark.parametrize("seq", [7, (1 << 63), (1 << 64) - 1])
def test_a_sequence_beyond_the_end(filled: Dash, forward: str, seq: int) -> None:
    assert len(seqs(filled.view(f"{PAGE}{forward}&seq={seq}"))) == (0 if forward else 6)


def test_a_subject_filter_selects(filled: Dash) -> None:
    assert seqs(filled.view(PAGE + "&subject=a.1")) == [5, 3, 1]
    assert seqs(filled.view(PAGE + "&subject=a.*&limit=2")) == [6, 5]
    assert seqs(filled.view(PAGE + "&subject=b.*")) == []
    assert seqs(filled.view(PAGE + "&subject=a.0&forward=true")) == [2, 4, 6]


def test_a_text_is_found_in_subject_headers_and_payload(filled: Dash) -> None:
    filled.publish("a.x", b"-", headers=b"NATS/1.0\r\nName: B\xc3\xb6ll\r\n\r\n")

    assert seqs(filled.view(PAGE + "&text=LOAD+3")) == [3]
    assert seqs(filled.view(PAGE + "&text=b%C3%B6LL")) == [7]
    assert seqs(filled.view(PAGE + "&text=A.X")) == [7]
    page = filled.view(PAGE + "&text=nothing")
    assert (seqs(page), page["scanned"], page["next"]) == ([], 7, 0)
    assert filled.view(PAGE)["messages"][0]["headers"] == 1


def test_a_search_is_cut_and_continues_where_it_stopped(
    filled: Dash, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(messages, "SCAN_MAX", 4)

    page = filled.view(PAGE + "&text=load+1")
    assert (seqs(page), page["scanned"], page["next"]) == ([], 4, 2)
    assert seqs(filled.view(PAGE + f"&text=load+1&seq={page['next']}")) == [1]
    monkeypatch.setattr(messages, "SCAN_SIZE", 20)
    assert filled.view(PAGE)["scanned"] == 3


def test_deleted_messages_are_passed_over(filled: Dash) -> None:
    for seq in (1, 4, 6):
        filled.user.request(b"$JS.API.STREAM.MSG.DELETE.A", b'{"seq":%d}' % seq)

    assert seqs(filled.view(PAGE)) == [5, 3, 2]
    assert seqs(filled.view(PAGE + "&forward=true")) == [2, 3, 5]


def test_an_empty_stream_has_no_messages(dash: Dash) -> None:
    dash.stream("A")

    assert seqs(dash.view(PAGE)) == []
    assert seqs(dash.view(PAGE + "&forward=true")) == []


def test_long_reads_are_done_in_steps(filled: Dash, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "STEP_COUNT", 2)
    assert filled.steps_of(f"/dashboard/data/{PAGE}") == 3
    monkeypatch.setattr(messages, "STEP_COUNT", 100)
    monkeypatch.setattr(messages, "STEP_SIZE", 9)
    assert filled.steps_of(f"/dashboard/data/{PAGE}") == 6


@pytest.mark.parametrize("storage", ["memory", "file"])
def test_a_stream_that_is_deleted_during_a_search_ends_it(
    dash: Dash, storage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(messages, "STEP_COUNT", 1)
    dash.stream("A", storage=storage)
    dash.publish("a.1", *[b"x"] * 10)
    steps = dash.router.answer(f"/dashboard/data/{PAGE}&text=x")
    next(steps)
    next(steps)
    dash.user.request(b"$JS.API.STREAM.DELETE.A", b"")

    assert finish(steps).status == 200


def test_each_match_of_a_wildcard_in_a_large_stream_is_a_step(dash: Dash) -> None:
    dash.stream("A")
    dash.publish("a.1.x", *[b""] * (SEARCHED + 1))

    assert dash.steps_of(f"/dashboard/data/{PAGE}&subject=a.*.x&limit=20") >= 20
    assert dash.steps_of(f"/dashboard/data/{PAGE}&limit=20") == 1


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("subject=a..b", 'subject="a..b": it is not a subject; wildcards are * and >'),
        ("subject=a+b", 'subject="a b": it is not a subject; wildcards are * and >'),
        (f"text={'x' * 257}", "text has 257 characters: use up to 256"),
        ("limit=201", "limit=201: use 1 to 200"),
        ("limit=-1", "limit=-1: use 1 to 200"),
        ("seq=-1", "Error decoding uint64 for 'seq'"),
        (f"seq={1 << 64}", "Error decoding uint64 for 'seq'"),
        ("forward=maybe", "Error decoding boolean for 'forward'"),
    ],
)
def test_wrong_arguments_are_refused(filled: Dash, query: str, text: str) -> None:
    assert filled.refusal(f"{PAGE}&{query}").startswith(text)


def test_a_message_has_its_headers_and_its_payload(filled: Dash) -> None:
    headers = b"NATS/1.0\r\nA: <b>\r\n\r\n"
    filled.publish("a.x", b"\x00\xff", headers=headers)

    found = filled.view(f"{ONE}&seq=7")

    assert (found["seq"], found["subject"], found["size"], found["headers_size"]) == (
        7,
        "a.x",
        2,
        len(headers),
    )
    assert base64.b64decode(found["headers"]) == headers
    assert base64.b64decode(found["payload"]) == b"\x00\xff"


def test_a_payload_comes_in_pieces(dash: Dash) -> None:
    dash.stream("A")
    payload = bytes(range(256)) * 1000
    dash.publish("a.1", payload)

    found = dash.view(f"{ONE}&seq=1&offset=255000&size=10")
    assert base64.b64decode(found["payload"]) == payload[255000:255010]
    assert len(base64.b64decode(dash.view(f"{ONE}&seq=1")["payload"])) == messages.PIECE
    assert dash.view(f"{ONE}&seq=1&offset={(1 << 64) - 1}")["payload"] == ""
    assert dash.refusal(f"{ONE}&seq=1&size=1048577") == "size=1048577: use up to 1048576"


@pytest.mark.parametrize("seq", ["0", "7", str(1 << 63), str((1 << 64) - 1)])
def test_a_message_that_is_not_there_is_refused(filled: Dash, seq: str) -> None:
    assert filled.refusal(f"{ONE}&seq={seq}") == f'stream "A" has no message {seq}'


def test_a_message_that_cannot_be_read_now_is_answered_so(
    filled: Dash, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(store: Any, seq: int) -> None:
        raise messages.Unreadable("message 6 cannot be read now; try again")

    monkeypatch.setattr(messages, "_read", fail)
    for view in (PAGE, f"{ONE}&seq=6"):
        answer = filled.ask(f"/dashboard/data/{view}")
        assert (answer.status, answer.body) == (503, b"message 6 cannot be read now; try again\n")


def test_a_store_that_is_short_of_memory_is_no_fault() -> None:
    class Short:
        def get(self, seq: int) -> None:
            raise NotNow("message 1 cannot be read now")

    with pytest.raises(messages.Unreadable) as refused:
        messages._read(Short(), 1)  # type: ignore[arg-type]
    assert str(refused.value) == "message 1 cannot be read now; try again"


def test_reading_consumes_nothing(dash: Dash) -> None:
    dash.stream("A", retention="workqueue")
    dash.consumer("A", "C")
    dash.publish("a.1", b"x")

    dash.view(PAGE)
    dash.view(f"{ONE}&seq=1")

    found = dash.view("consumer?acc=$G&stream=A&consumer=C")
    assert (found["pending"], found["ack_pending"]) == (1, 0)
    assert dash.view("stream?acc=$G&stream=A")["state"]["messages"] == 1
