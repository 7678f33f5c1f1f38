"""Requests to the API that look up and apply assets, their answers, and reports."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.declared.test_reading import declared

from pyjs.declared.asking import AT_ONCE, Ask, LookFailed, Outcome, carry_out, plan
from pyjs.declared.planning import Plan, Verb
from pyjs.declared.report import is_done, outcome_lines, plan_json, plan_lines, totals

if TYPE_CHECKING:
    from pyjs.declared.asking import Answer

EMPTY = {"total": 0, "offset": 0, "limit": 256, "streams": []}
STATE = {"messages": 0}
LIMITS = ("max_consumers", "max_msgs", "max_bytes", "max_msgs_per_subject", "max_msg_size")
UNLIMITED = dict.fromkeys(LIMITS, -1)


def answered(exchange: Any, answers: dict[str, Any], asked: list[list[str]] | None = None) -> Any:
    """Carry out an exchange with an answer for each subject and offset."""
    try:
        asks: list[Ask] = next(exchange)
        while True:
            if asked is not None and asks:
                asked.append([each.words for each in asks])
            asks = exchange.send([_answer(each, answers) for each in asks])
    except StopIteration as end:
        return end.value


def _answer(ask: Ask, answers: dict[str, Any]) -> Answer:
    offset = ask.body.get("offset")
    found: Answer = answers.get(f"{ask.words}@{offset}" if offset else ask.words, {})
    return found


def made(blocks: str, answers: dict[str, Any] | None = None) -> Plan:
    found: Plan = answered(plan(declared(blocks), 0), {"STREAM.LIST": EMPTY, **(answers or {})})
    return found


def info(name: str, **options: Any) -> dict[str, Any]:
    config = {"name": name, "subjects": [name], "num_replicas": 1, "storage": "file", **UNLIMITED, **options}
    return {"config": config, "state": STATE}


def test_all_pages_of_streams_are_read() -> None:
    page = {"total": 3, "limit": 1}
    answers = {
        "STREAM.LIST": {**page, "streams": [info("A")]},
        "STREAM.LIST@1": {**page, "streams": [info("B")]},
        "STREAM.LIST@2": {**page, "streams": None, "missing": ["C"], "offline": {"C": "too new"}},
    }
    planned = made("streams { A {}\nC {}\nD {} }", answers)
    assert [(each.asset.name, each.verb) for each in planned.actions] == [
        ("A", Verb.UPDATE),
        ("C", Verb.REFUSE),
        ("D", Verb.CREATE),
    ]
    assert planned.actions[1].reason == "too new"
    assert planned.others == ["stream B"]


def test_consumers_are_looked_up_where_the_file_declares_any() -> None:
    asked: list[list[str]] = []
    answers = {
        "STREAM.LIST": {**EMPTY, "streams": [info("A"), info("B")]},
        "CONSUMER.LIST.A": {
            "total": 1,
            "limit": 256,
            "consumers": [{"name": "c", "config": {"name": "c", "durable_name": "c"}}],
        },
    }
    blocks = "streams { A {}\nB {} }\nconsumers { A { c {}, d {} }, MISSING { e {} } }"
    planned = answered(plan(declared(blocks), 0), answers, asked)
    assert asked == [["STREAM.LIST"], ["CONSUMER.LIST.A"]]
    assert [each.asset.name for each in planned.actions] == ["A", "B", "c", "d", "e"]


@pytest.mark.parametrize(
    ("answer", "text", "is_temporary"),
    [
        (None, "no server answers", True),
        ({"error": {"code": 503, "err_code": 10008, "description": "unavailable"}}, "unavailable", True),
        ({"error": {"code": 503, "err_code": 10039, "description": "not enabled"}}, "not enabled", True),
        ({"error": {"code": 400, "err_code": 10025, "description": "invalid"}}, "invalid", False),
    ],
)
def test_a_list_that_fails_ends_the_look(answer: Answer, text: str, is_temporary: bool) -> None:
    with pytest.raises(LookFailed, match=text) as caught:
        made("streams { S {} }", {"STREAM.LIST": answer})
    assert caught.value.is_temporary is is_temporary


def test_a_stream_that_is_deleted_meanwhile_has_no_consumers() -> None:
    gone = {"error": {"code": 404, "err_code": 10059, "description": "stream not found"}}
    answers = {"STREAM.LIST": {**EMPTY, "streams": [info("A")]}, "CONSUMER.LIST.A": gone}
    assert made("streams { A {} }\nconsumers { A { c {} } }", answers).actions[1].verb is Verb.CREATE


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (None, "no server answers"),
        (
            {"error": {"code": 500, "err_code": 10118, "description": "stream is offline"}},
            "no server answers",
        ),
        ({"error": {"code": 500, "err_code": 10194, "description": "too new"}}, "too new"),
    ],
)
def test_a_stream_whose_server_has_just_ended_does_not_stop_the_others(answer: Answer, reason: str) -> None:
    answers = {"STREAM.LIST": {**EMPTY, "streams": [info("A")]}, "CONSUMER.LIST.A": answer}
    planned = made("streams { A {}\nB {} }\nconsumers { A { c {} } }", answers)
    assert [(each.asset.name, each.verb, each.reason) for each in planned.actions] == [
        ("A", Verb.REFUSE, reason),
        ("B", Verb.CREATE, ""),
        ("c", Verb.REFUSE, reason),
    ]


def test_waves_are_sent_one_after_the_other_and_many_requests_in_parts() -> None:
    entries = "\n".join(f"S{number} {{}}" for number in range(AT_ONCE + 1))
    planned = made(f"streams {{ {entries} }}\nconsumers {{ S0 {{ c {{}} }} }}")
    asked: list[list[str]] = []
    outcomes = answered(carry_out(planned), {}, asked)
    assert [len(each) for each in asked] == [AT_ONCE, 1, 1]
    assert asked[0][0] == "STREAM.CREATE.S0"
    assert asked[2] == ["CONSUMER.CREATE.S0.c"]
    assert totals(outcomes) == f"{AT_ONCE + 2} created"


@pytest.mark.parametrize(
    ("answer", "error", "is_temporary"),
    [
        ({}, "", False),
        (None, "no server answers", True),
        ({"error": {"code": 400, "err_code": 10005, "description": "no peers"}}, "no peers", True),
        ({"error": {"code": 500, "err_code": 10047, "description": "no room"}}, "no room", False),
    ],
)
def test_an_answer_is_an_outcome(answer: Answer, error: str, is_temporary: bool) -> None:
    (outcome,) = answered(carry_out(made("streams { S {} }")), {"STREAM.CREATE.S": answer})
    assert (outcome.error, outcome.is_temporary) == (error, is_temporary)


def test_a_stream_without_a_leader_is_tried_again() -> None:
    planned = made("streams { S {} }", {"STREAM.LIST": {**EMPTY, "missing": ["S"]}})
    (outcome,) = answered(carry_out(planned), {})
    assert (outcome.error, outcome.is_temporary) == ("no server answers", True)


CONFIG = {"name": "S", "subjects": ["s"]}


@pytest.mark.parametrize(
    "page",
    [
        {**EMPTY, "streams": [{}]},
        {**EMPTY, "streams": [5]},
        {**EMPTY, "streams": [{"config": CONFIG, "state": {"messages": "x"}}]},
        {**EMPTY, "streams": [{"config": CONFIG, "state": {"messages": 1}}]},
        {**EMPTY, "streams": [{"config": CONFIG, "state": {"messages": 1, "first_ts": "now"}}]},
        {**EMPTY, "total": 1 << 63},
        {**EMPTY, "total": "5"},
        {**EMPTY, "limit": 0},
        {**EMPTY, "limit": 1 << 63},
    ],
)
def test_an_invalid_page_ends_the_look(page: dict[str, Any]) -> None:
    with pytest.raises(LookFailed, match="an answer is invalid"):
        made("streams { S {} }", {"STREAM.LIST": page})


def test_an_invalid_page_of_consumers_ends_the_look() -> None:
    for consumer in ({}, {"name": "c", "config": {"ack_wait": "x"}}, {"config": {}}):
        answers = {
            "STREAM.LIST": {**EMPTY, "streams": [info("S")]},
            "CONSUMER.LIST.S": {"total": 1, "limit": 256, "consumers": [consumer]},
        }
        with pytest.raises(LookFailed, match="an answer is invalid"):
            made("consumers { S { c {} } }", answers)


def test_a_stream_that_cannot_be_read_is_left_alone() -> None:
    planned = made("streams { S {} }", {"STREAM.LIST": {**EMPTY, "streams": [info("S", storage="tape")]}})
    assert planned.actions[0].verb is Verb.REFUSE
    assert planned.actions[0].reason.startswith("its configuration cannot be read: ")


# -- reports ---------------------------------------------------------------------------------------------------

BLOCKS = "streams { A { description: x }\nB { storage: memory }\nC {}\nD {} }"
THERE = {
    "STREAM.LIST": {
        **EMPTY,
        "streams": [info("A"), info("B"), info("C", duplicate_window=120_000_000_000), info("E")],
    }
}


def test_a_plan_has_a_line_for_each_asset() -> None:
    planned = made(BLOCKS, THERE)
    assert list(plan_lines(planned)) == [
        '~ stream A  update description: "" -> x, duplicate_window: 0s -> 2m0s',
        "! stream B  cannot change storage: file -> memory, duplicate_window: 0s -> 2m0s"
        " (stream configuration update can not change storage type)",
        "= stream C",
        "+ stream D  create",
        "- stream E  not in the file, left alone",
    ]
    assert not is_done([planned])
    assert is_done([made("streams { C {} }", THERE)])


def test_a_client_cannot_write_lines_of_the_log() -> None:
    streams = [info("A", description="x\n[ERR] forged\x1b[2J"), info("\x1b[31m")]
    planned = made("streams { A { description: y } }", {"STREAM.LIST": {**EMPTY, "streams": streams}})
    first, second = plan_lines(planned)
    assert first.startswith("~ stream A  update description: x\\n[ERR] forged\\x1b[2J -> y")
    assert second == "- stream \\x1b[31m  not in the file, left alone"


def test_a_plan_as_json() -> None:
    found = plan_json(made(BLOCKS, THERE))
    assert found["account"] == "$G"
    assert [each["action"] for each in found["assets"]] == ["update", "refuse", "same", "create"]
    assert found["assets"][0]["changes"][0] == {"field": "description", "old": "", "new": "x"}
    assert found["assets"][1]["reason"] == "stream configuration update can not change storage type"
    assert found["not_in_file"] == ["stream E"]


def test_the_log_has_no_line_for_what_stays() -> None:
    refused = {"STREAM.CREATE.D": {"error": {"code": 500, "description": "no room"}}}
    outcomes = answered(carry_out(made(BLOCKS, THERE)), refused)
    assert [(is_error, line[:55]) for is_error, line in outcome_lines("A", outcomes)] == [
        (False, "Declared in account A: ~ stream A  updated description:"),
        (True, "Declared in account A: ! stream B  cannot change storag"),
        (True, "Declared in account A: + stream D  create: no room"),
    ]
    assert totals(outcomes) == "1 updated, 1 unchanged, 2 failed"


def test_the_log_has_a_hundred_lines_at_most() -> None:
    entries = "\n".join(f"S{number} {{}}" for number in range(150))
    outcomes: list[Outcome] = answered(carry_out(made(f"streams {{ {entries} }}")), {})
    lines = [line for _, line in outcome_lines("A", outcomes)]
    assert len(lines) == 101
    assert lines[-1] == "Declared in account A: 50 more lines are left out"


def test_nothing_has_no_numbers() -> None:
    assert totals([]) == "nothing"
