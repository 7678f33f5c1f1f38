"""Plans: the action for each asset, the order of actions, and refusals; and comparisons of assets."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.declared.test_reading import declared

from pyjs.declared.comparing import Contents, consumer_changes
from pyjs.declared.planning import Action, Plan, Stored, StoredStream, Verb, make_plan
from pyjs.declared.reading import checked
from pyjs.jetstream.config.consumer import ConsumerConfig
from pyjs.jetstream.config.stream import StreamConfig
from pyjs.subjects.overlap import at_once

NOW_NS = 1_800_000_000_000_000_000
HOUR_NS = 3_600_000_000_000
EMPTY = Contents()


def stored(blocks: str, contents: Contents = EMPTY, **unavailable: str) -> Stored:
    """Return what a server has after it applied `blocks`."""
    assets = declared(blocks)
    streams = {
        name: StoredStream(checked(assets, asset.config, lambda _: None), contents)
        for name, asset in assets.streams.items()
    }
    there = Stored(streams, unavailable)
    for stream, name in assets.consumers:
        empty = Stored(streams, {}, {stream: {}})
        made = at_once(make_plan(assets, empty, NOW_NS))
        config = next(each.config for each in made.actions if each.asset.name == name)["config"]
        there.consumers.setdefault(stream, {})[name] = ConsumerConfig(**_attributes(config))
    return there


def _attributes(config: dict[str, Any]) -> dict[str, Any]:
    durations = ("ack_wait", "inactive_threshold")
    return {
        f"{name}_ns" if name in durations else name: tuple(value) if isinstance(value, list) else value
        for name, value in config.items()
    }


def planned(blocks: str, there: Stored | None = None) -> Plan:
    return at_once(make_plan(declared(blocks), there or Stored(), NOW_NS))


def only(blocks: str, there: Stored | None = None) -> Action:
    (action,) = planned(blocks, there).actions
    return action


def shown(action: Action) -> list[str]:
    return [str(change) for change in action.changes]


def test_a_missing_stream_is_created_with_its_defaults() -> None:
    action = only("streams { S { subjects: s } }")
    assert action.verb is Verb.CREATE
    assert (action.config["name"], action.config["max_msgs"], action.config["storage"]) == ("S", -1, "file")


def test_an_equal_stream_stays() -> None:
    assert (
        only("streams { S { subjects: s } }", stored("streams { S { subjects: [s], max_msgs: -1 } }")).verb
        is Verb.SAME
    )


def test_a_different_option_is_updated_and_one_that_left_the_file_gets_its_default() -> None:
    action = only(
        'streams { S { max_age: "1h" } }', stored("streams { S { max_msgs: 5, metadata: { a: b } } }")
    )
    assert action.verb is Verb.UPDATE
    assert shown(action) == ["max_msgs: 5 -> -1", "max_age: 0s -> 1h0m0s", 'metadata: {"a":"b"} -> {}']
    assert (action.config["max_age"], action.config["max_msgs"]) == (HOUR_NS, -1)


def test_metadata_of_the_server_is_no_difference() -> None:
    there = stored("streams { S {} }")
    marked = replace(there.streams["S"].config, metadata={"_nats.ver": "2.15.1", "_nats.req.level": "0"})
    there.streams["S"] = StoredStream(marked, EMPTY)
    assert only("streams { S {} }", there).verb is Verb.SAME


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("storage: memory", "storage: file", "can not change storage type"),
        ("retention: workqueue", "retention: limits", "can not change retention policy to/from workqueue"),
        ("deny_delete: true", "", "can not cancel deny message deletes"),
        ("allow_msg_ttl: true", "", "message TTL status can not be disabled"),
        ("", "allow_msg_counter: true", "can not change message counter setting"),
    ],
)
def test_what_an_update_cannot_change_is_refused(old: str, new: str, reason: str) -> None:
    action = only(f"streams {{ S {{ {new} }} }}", stored(f"streams {{ S {{ {old} }} }}"))
    assert action.verb is Verb.REFUSE
    assert reason in action.reason
    assert shown(action)
    assert action.config == {}


FULL = Contents(10, 1000, 5, NOW_NS - HOUR_NS)


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("", "max_msgs: 9", "max_msgs 9 would remove 1 of 10 messages"),
        ("", "max_bytes: 999", "max_bytes 999 would remove messages: the stream holds 1000 bytes"),
        ("", 'max_age: "59m"', "max_age 59m0s would remove messages that are older"),
        ('max_age: "3h"', 'max_age: "59m"', "max_age 59m0s would remove messages that are older"),
        (
            "",
            "max_msgs_per_subject: 1",
            "max_msgs_per_subject 1 may remove messages: 10 messages have 5 subjects",
        ),
        ("", "retention: interest", "retention interest removes messages"),
    ],
)
def test_an_update_that_removes_messages_needs_permission(old: str, new: str, reason: str) -> None:
    there = stored(f"streams {{ S {{ {old} }} }}", FULL)
    action = only(f"streams {{ S {{ {new} }} }}", there)
    assert action.verb is Verb.REFUSE
    assert action.reason == f"{action.reason.partition(';')[0]}; write allow_data_loss: true to allow it"
    assert action.reason.startswith(reason)
    assert only(f"streams {{ S {{ {new}, allow_data_loss: true }} }}", there).verb is Verb.UPDATE


@pytest.mark.parametrize(
    "new",
    [
        "max_msgs: 10",
        "max_bytes: 1000",
        'max_age: "61m"',
        "max_msgs_per_subject: 10",
        "max_msg_size: 1",
        "discard: new",
    ],
)
def test_a_lower_limit_that_removes_nothing_needs_no_permission(new: str) -> None:
    assert only(f"streams {{ S {{ {new} }} }}", stored("streams { S {} }", FULL)).verb is Verb.UPDATE


def test_one_message_for_each_subject_is_within_every_limit() -> None:
    there = stored("streams { S {} }", FULL._replace(subjects=10))
    assert only("streams { S { max_msgs_per_subject: 1 } }", there).verb is Verb.UPDATE


def test_a_subject_moves_from_one_stream_to_another_in_two_waves() -> None:
    actions = planned(
        "streams { A { subjects: [b] }\nB { subjects: [c] } }",
        stored("streams { A { subjects: [a] }\nB { subjects: [b] } }"),
    ).actions
    assert [(each.asset.name, each.verb, each.wave) for each in actions] == [
        ("A", Verb.UPDATE, 1),
        ("B", Verb.UPDATE, 0),
    ]


def test_an_exchange_of_subjects_is_refused() -> None:
    actions = planned(
        "streams { A { subjects: [b] }\nB { subjects: [a] } }",
        stored("streams { A { subjects: [a] }\nB { subjects: [b] } }"),
    ).actions
    assert [each.verb for each in actions] == [Verb.REFUSE] * 2
    assert [each.reason for each in actions] == [
        "subjects overlap with an existing stream: B",
        "subjects overlap with an existing stream: A",
    ]


def test_subjects_of_a_stream_outside_the_file_are_refused_with_its_name() -> None:
    plan = planned("streams { S { subjects: [x.>] } }", stored("streams { OTHER { subjects: [x.y] } }"))
    assert plan.actions[0].reason == "subjects overlap with an existing stream: OTHER"
    assert plan.others == ["stream OTHER"]


def test_a_mirror_ends_only_if_the_file_allows_it() -> None:
    there = stored("streams { M { mirror: { name: O } } }")
    action = only("streams { M { subjects: m } }", there)
    assert action.verb is Verb.REFUSE
    assert action.reason == (
        "without a mirror, the stream stops copying O for good; write allow_data_loss: true to allow it"
    )
    assert only("streams { M { subjects: m, allow_data_loss: true } }", there).verb is Verb.UPDATE


def test_a_mirror_waits_for_its_origin() -> None:
    actions = planned("streams { M { mirror: { name: O } }\nO { subjects: o, allow_direct: true } }").actions
    assert [(each.asset.name, each.wave) for each in actions] == [("M", 1), ("O", 0)]


def test_a_stream_does_not_wait_for_an_origin_that_is_refused() -> None:
    there = stored("streams { OTHER { subjects: [o] } }")
    actions = planned("streams { M { mirror: { name: O } }\nO { subjects: [o] } }", there).actions
    assert [(each.asset.name, each.verb) for each in actions] == [("M", Verb.CREATE), ("O", Verb.REFUSE)]


def test_streams_that_copy_from_each_other_do_not_wait_forever() -> None:
    blocks = (
        "streams { A { subjects: [a], sources: [{ name: B, filter_subject: b }] }\n"
        "B { subjects: [b], sources: [{ name: A, filter_subject: a }] } }"
    )
    assert [each.verb for each in planned(blocks).actions] == [Verb.CREATE, Verb.CREATE]


def test_a_stream_that_cannot_be_asked_is_refused() -> None:
    plan = planned(
        "streams { S {} }\nconsumers { S { c {} } }", Stored(unavailable={"S": "no server answers"})
    )
    assert [(each.verb, each.reason) for each in plan.actions] == [(Verb.REFUSE, "no server answers")] * 2


def test_streams_beyond_the_limit_of_the_account_are_refused() -> None:
    assets = declared("streams { A {}\nB {} }")
    assets.limits.max_streams = 1
    plan = at_once(make_plan(assets, Stored(), NOW_NS))
    assert [each.verb for each in plan.actions] == [Verb.CREATE, Verb.REFUSE]
    assert plan.actions[1].reason == "maximum number of streams reached"


@pytest.mark.parametrize("owner", ["server", "limits"])
def test_more_room_than_the_account_or_the_server_has_is_refused(owner: str) -> None:
    assets = declared("streams { A { max_bytes: 1KB }\nB { max_bytes: 1KB }\nC {} }")
    getattr(assets, owner).max_storage = 1500
    plan = at_once(make_plan(assets, Stored(), NOW_NS))
    assert [each.verb for each in plan.actions] == [Verb.CREATE, Verb.REFUSE, Verb.CREATE]
    assert plan.actions[1].reason == "insufficient storage resources available"


def test_a_lower_limit_makes_room() -> None:
    there = stored("streams { A { max_bytes: 1KB, storage: memory } }")
    assets = declared(
        "streams { A { max_bytes: 100, storage: memory }\nB { max_bytes: 1KB, storage: memory } }"
    )
    assets.limits.max_memory = 1500
    plan = at_once(make_plan(assets, there, NOW_NS))
    assert [each.verb for each in plan.actions] == [Verb.UPDATE, Verb.CREATE]


# -- consumers -------------------------------------------------------------------------------------------------


def test_a_consumer_waits_for_its_stream() -> None:
    stream, consumer = planned("streams { S {} }\nconsumers { S { c {} } }").actions
    assert (stream.wave, consumer.wave, consumer.config["action"]) == (0, 1, "create")
    assert consumer.config["config"]["durable_name"] == "c"


def test_a_consumer_of_no_stream_is_refused() -> None:
    assert only("consumers { S { c {} } }").reason == "stream not found"


def test_a_consumer_is_updated_and_another_one_is_left_alone() -> None:
    there = stored("streams { S {} }\nconsumers { S { c { ack_policy: explicit }, other {} } }")
    plan = planned('streams { S {} }\nconsumers { S { c { ack_policy: explicit, ack_wait: "1m" } } }', there)
    assert [each.verb for each in plan.actions] == [Verb.SAME, Verb.UPDATE]
    assert shown(plan.actions[1]) == ["ack_wait: 30s -> 1m0s"]
    assert plan.others == ["consumer S > other"]


def test_what_a_consumer_cannot_change_is_refused() -> None:
    there = stored("streams { S {} }\nconsumers { S { c { ack_policy: explicit } } }")
    action = planned("streams { S {} }\nconsumers { S { c { ack_policy: all } } }", there).actions[1]
    assert (action.verb, action.reason) == (Verb.REFUSE, "ack policy can not be updated")
    assert shown(action) == ["ack_policy: explicit -> all"]


def test_a_pause_belongs_to_operation() -> None:
    there = stored("streams { S {} }\nconsumers { S { c {} } }")
    there.consumers["S"]["c"] = replace(there.consumers["S"]["c"], pause_until_ns=NOW_NS)
    assert planned("streams { S {} }\nconsumers { S { c {} } }", there).actions[1].verb is Verb.SAME


def test_other_filters_on_an_interest_stream_need_permission() -> None:
    streams = "streams { S { subjects: [s.>], retention: interest } }\n"
    there = stored(streams + "consumers { S { c { ack_policy: explicit } } }", FULL)
    new = "consumers {{ S {{ c {{ ack_policy: explicit, filter_subject: s.a {} }} }} }}"
    assert planned(streams + new.format(""), there).actions[1].verb is Verb.REFUSE
    assert planned(streams + new.format(", allow_data_loss: true"), there).actions[1].verb is Verb.UPDATE


def test_consumers_of_a_workqueue_do_not_share_subjects() -> None:
    streams = "streams { S { subjects: [s.>], retention: workqueue } }\n"
    options = "{ ack_policy: explicit, filter_subject: s.a }"
    new = f"consumers {{ S {{ a {options}, b {options} }} }}"
    assert [each.verb for each in planned(streams + new).actions] == [Verb.CREATE, Verb.CREATE, Verb.REFUSE]


def test_consumers_beyond_a_limit_are_refused() -> None:
    actions = planned("streams { S { max_consumers: 1 } }\nconsumers { S { a {}, b {} } }").actions
    assert [each.verb for each in actions] == [Verb.CREATE, Verb.CREATE, Verb.REFUSE]
    assert actions[2].reason == "maximum consumers limit reached"


def test_limits_that_a_consumer_exceeds_are_refused() -> None:
    there = stored("streams { S {} }\nconsumers { S { c { ack_policy: explicit } } }")
    action = only("streams { S { consumer_limits: { max_ack_pending: 10 } } }", there)
    assert action.reason == "change to limits violates consumers: c"


def test_a_long_value_is_cut_in_a_line() -> None:
    (change,) = consumer_changes(ConsumerConfig(), ConsumerConfig(description="x" * 200))
    assert str(change) == f'description: "" -> {"x" * 100}...'


def test_an_unset_part_and_a_switch_are_shown() -> None:
    there = stored("streams { S {} }")
    action = only("streams { S { allow_direct: true, republish: { src: a, dest: b } } }", there)
    assert shown(action) == ['republish: none -> {"src":"a","dest":"b"}', "allow_direct: false -> true"]


def test_a_plan_of_many_streams_has_steps() -> None:
    entries = "\n".join(f"S{number} {{}}" for number in range(300))
    steps = make_plan(declared(f"streams {{ {entries} }}"), Stored(), NOW_NS)
    assert sum(1 for _ in steps) >= 8


def test_the_configuration_of_a_stream_is_complete() -> None:
    assert isinstance(declared("streams { S {} }").streams["S"].config, StreamConfig)
