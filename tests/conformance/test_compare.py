"""The comparison finds every change of a recorded run, except changes of values that must be masked.

The run is a real one (`recorded/sample.json`, made from `recorded/sample.txt`). One place is changed at a time: every
scalar is replaced, every member is removed and one added, every list is shortened, doubled and reordered.
"""

from __future__ import annotations

import copy
import json
import string
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from tests.conformance.harness.compare import differences
from tests.conformance.harness.masks import BUILD_FIELDS

RECORDED = Path(__file__).parent / "recorded"
SCRIPT = (RECORDED / "sample.txt").read_text("utf-8")
SAMPLE: dict[str, Any] = json.loads((RECORDED / "sample.json").read_text("utf-8"))

# The fields, by name, in which the comparison does not detect another value of the same form; this list is complete.
# Ids that a server uses twice (server_id, xkey, cid, names of consumers) are not in it: a change in only one of the
# two places is detected.
MASKED = {
    *("version", "go", "git_commit", "client_id", "port", "id", "uptime", "idle", "rtt", "start", "now"),
    *("created", "ts", "time", "timestamp", "first_ts", "last_ts", "last_active", "last_activity"),
    "Nats-Time-Stamp",
}

Path_ = tuple[str | int, ...]


def places(value: Any, path: Path_ = ()) -> Iterator[tuple[Path_, Any]]:
    """Yield every value of a recording with its path, including containers; the player's field `run` is left out."""
    if path[:1] == ("runs",) or path[-1:] == ("run",):
        return
    yield path, value
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from places(inner, (*path, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from places(inner, (*path, index))


def changed(path: Path_, change: Callable[[Any], Any]) -> dict[str, Any]:
    """Return the sample with the value at `path` replaced by `change(value)`."""
    recording = copy.deepcopy(SAMPLE)
    holder: Any = recording
    for key in path[:-1]:
        holder = holder[key]
    holder[path[-1]] = change(holder[path[-1]])
    return recording


def is_seen(recording: dict[str, Any]) -> bool:
    return bool(differences(SAMPLE, recording, SCRIPT))


def name_of(path: Path_) -> str:
    """Return the name of the field at `path`; a header field is named by its key."""
    if path[-1] == 1 and isinstance(path[-2], int) and path[-3] == "fields":
        holder: Any = SAMPLE
        for key in path[:-1]:
            holder = holder[key]
        return str(holder[0])
    return next(str(key) for key in reversed(path) if isinstance(key, str))


def same_form(value: str | int) -> str | int:
    """Return another value of the same form: its last digit, or else its last letter, is changed."""
    if isinstance(value, int):
        return value + 1000
    digits = [index for index, letter in enumerate(value) if letter in string.digits]
    letters = [index for index, letter in enumerate(value) if letter in string.ascii_letters]
    for found, alphabet in ((digits, "23"), (letters, "xy")):
        if found:
            other = alphabet[value[found[-1]] == alphabet[0]]
            return value[: found[-1]] + other + value[found[-1] + 1 :]
    return value + "x"


SCALARS = [(path, value) for path, value in places(SAMPLE) if not isinstance(value, (dict, list))]
COMPARED = [(path, value) for path, value in SCALARS if path[-1] not in BUILD_FIELDS]
CONTAINERS = [
    (path, value) for path, value in places(SAMPLE) if isinstance(value, (dict, list)) and len(path) > 1
]


def test_the_sample_equals_itself() -> None:
    assert differences(SAMPLE, copy.deepcopy(SAMPLE), SCRIPT) == []


def test_a_value_of_another_form_is_always_seen() -> None:
    # given
    strings = [
        path for path, value in SCALARS if isinstance(value, str) and name_of(path) not in BUILD_FIELDS
    ]
    # when
    missed = [path for path in strings if not is_seen(changed(path, lambda text: text + " !"))]
    # then
    assert missed == []


def test_a_value_of_another_type_is_always_seen() -> None:
    # when
    missed = [path for path, _ in COMPARED if not is_seen(changed(path, lambda value: {"": value}))]
    missed += [
        path for path, value in COMPARED if value is not None and not is_seen(changed(path, lambda _: None))
    ]
    missed += [path for path, value in SCALARS if isinstance(value, bool) and not is_seen(changed(path, int))]
    # then
    assert missed == []


def test_another_value_of_the_same_form_is_seen_except_where_it_is_masked() -> None:
    # when
    numbers_and_texts = [(path, value) for path, value in SCALARS if isinstance(value, (str, int))]
    missed = {name_of(path) for path, value in numbers_and_texts if not is_seen(changed(path, same_form))}
    # then
    assert missed == MASKED


def test_of_an_ack_subject_only_the_time_may_differ() -> None:
    # given
    path = next(
        path for path, value in SCALARS if path[-1] == "reply" and str(value).startswith("$JS.ACK.S.c.")
    )
    tokens = str(_at(path)).split(".")
    # when
    seen = [is_seen(changed(path, partial(_with_token, tokens, i))) for i in range(len(tokens))]
    # then
    assert [i for i, was_seen in enumerate(seen) if not was_seen] == [tokens.index(max(tokens, key=len))]


def test_the_other_truth_value_is_seen() -> None:
    booleans = [path for path, value in SCALARS if isinstance(value, bool)]
    assert booleans
    assert [path for path in booleans if not is_seen(changed(path, lambda value: not value))] == []


def test_an_id_that_changes_in_one_of_two_places_is_seen() -> None:
    # given
    ids = ("server_id", "client_id", "xkey")
    places_of_ids = [path for path, _ in SCALARS if name_of(path) in ids]
    values = [_at(path) for path in places_of_ids]
    by_value = [path for path in places_of_ids if values.count(_at(path)) > 1]
    # when
    missed = [path for path in by_value if not is_seen(changed(path, same_form))]
    # then
    assert len(by_value) > 10
    assert missed == []


def test_a_made_up_consumer_name_must_be_the_same_in_its_ack_subjects() -> None:
    # given
    made_up = next(_at(path) for path, _ in SCALARS if path[-1] == "name" and len(str(_at(path))) == 8)
    replies = [path for path, value in SCALARS if path[-1] == "reply" and str(made_up) in str(value)]
    # when
    missed = [
        p for p in replies if not is_seen(changed(p, lambda text: text.replace(str(made_up), "ABCDEFGH")))
    ]
    # then
    assert replies
    assert missed == []


def test_a_missing_or_added_member_is_seen() -> None:
    # given
    members = [path for path, _ in places(SAMPLE) if len(path) > 1 and isinstance(path[-1], str)]
    # when
    missed = [path for path in members if path[-1] not in BUILD_FIELDS and not is_seen(_without(path))]
    dicts = [path for path, value in CONTAINERS if isinstance(value, dict)]
    missed += [path for path in dicts if not is_seen(changed(path, lambda value: value | {"more": 1}))]
    # then
    assert missed == []


def test_a_missing_doubled_or_moved_element_is_seen() -> None:
    # given
    elements = [path for path, _ in places(SAMPLE) if path and isinstance(path[-1], int)]
    lists = [(path, value) for path, value in CONTAINERS if isinstance(value, list)]
    # when
    missed = [path for path in elements if not is_seen(_without(path))]
    missed += [
        path for path, _ in lists if not is_seen(changed(path, lambda value: [*value, {"op": "close"}]))
    ]
    for path, value in lists:
        for index in range(len(value) - 1):
            if value[index] != value[index + 1]:
                moved = changed(path, partial(_swapped, index))
                missed += [] if is_seen(moved) else [(*path, index)]
    # then
    assert missed == []


def test_a_close_that_does_not_come_is_seen() -> None:
    closes = [path for path, value in places(SAMPLE) if value == {"op": "close"}]
    assert closes
    assert all(is_seen(_without(path)) for path in closes)


def test_only_the_fields_of_a_build_may_be_added_to_info() -> None:
    # given
    path: Path_ = ("connections", "a", 0, "info")
    # then
    assert not is_seen(changed(path, lambda info: info | {"pyjs_version": "0.1.0"}))
    assert is_seen(changed(path, lambda info: info | {"pyjs_other": "0.1.0"}))


def test_the_zero_time_is_not_a_time_like_any_other() -> None:
    path = next(path for path, _ in SCALARS if path[-1] == "created")
    assert is_seen(changed(path, lambda _: "0001-01-01T00:00:00Z"))


def _swapped(index: int, items: list[Any]) -> list[Any]:
    return [*items[:index], items[index + 1], items[index], *items[index + 2 :]]


def _with_token(tokens: list[str], index: int, _: str) -> str:
    return ".".join([*tokens[:index], str(same_form(tokens[index])), *tokens[index + 1 :]])


def _at(path: Path_) -> Any:
    value: Any = SAMPLE
    for key in path:
        value = value[key]
    return value


def _without(path: Path_) -> dict[str, Any]:
    recording = copy.deepcopy(SAMPLE)
    holder: Any = recording
    for key in path[:-1]:
        holder = holder[key]
    del holder[path[-1]]
    return recording
