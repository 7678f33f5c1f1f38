"""The scenarios with clients on the second of two workers and the streams in the first or in both workers.

A run plays a part of them, chosen by the commit; `make conformance` plays all.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.conformance.harness.compare import masked_differences
from tests.conformance.harness.masks import Masker
from tests.conformance.harness.player import Recording, play
from tests.conformance.harness.process import our_command
from tests.conformance.harness.recordings import read_recording, shortened
from tests.conformance.harness.script import Script, load_all
from tests.conformance.test_scenarios import PLAY_ALL, listed_differences
from tests.support.groups import PLAYED_AGAIN
from tests.support.turns import commit_of_tree, is_chosen

WORKERS = 2
PLAYED_EVERY = 80  # one in this many scenarios is played
LATER = "advisories of the first worker may come after the PONG of the second one"
CLOSED = "the list has the connections that were opened to find the worker"
REFUSED = "max_payload is more than a quarter of max_pending"
EACH = "the limit on open batches of the server is that of each worker"
DIFFERENT = {
    "advisories/api_audit_errors": LATER,
    "monitoring/connz_closed": CLOSED,
    "monitoring/connz": CLOSED,
    "monitoring/slow_consumer": REFUSED,
}
DIFFERENT_SPREAD = DIFFERENT | {"atomic/errors": EACH, "fast/errors": EACH}


def _chosen(kind: str, different: dict[str, str]) -> list[Script]:
    """Return the scenarios that are played at this commit."""
    return [
        script
        for script in load_all()
        if (PLAY_ALL or is_chosen(script.name, f"{kind} {commit_of_tree()}", PLAYED_EVERY))
        and script.name not in {*different, *listed_differences()}
        and read_recording(script) is not None
    ]


@pytest.mark.timeout(240)
@pytest.mark.parametrize("script", _chosen("workers", DIFFERENT), ids=lambda script: script.name)
def test_a_scenario_is_the_same_through_another_worker(
    script: Script, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    _compare(script, tmp_path, record_property, is_spread=False)


@pytest.mark.timeout(240)
@pytest.mark.parametrize("script", _chosen("spread", DIFFERENT_SPREAD), ids=lambda script: script.name)
def test_a_scenario_is_the_same_with_streams_in_two_workers(
    script: Script, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    _compare(script, tmp_path, record_property, is_spread=True)


def test_every_difference_is_that_of_a_scenario() -> None:
    assert {script.name for script in load_all()} >= set(DIFFERENT_SPREAD)


def _compare(
    script: Script, directory: Path, record_property: Callable[[str, object], None], *, is_spread: bool
) -> None:
    """Play a scenario, and again if it differs."""
    kept = read_recording(script)
    assert kept is not None
    found = masked_differences(kept, _played(script, directory / "once", is_spread))
    if found:
        record_property(PLAYED_AGAIN, script.name)
        found = masked_differences(kept, _played(script, directory / "again", is_spread))
    assert not found, "nats-server | worker 2\n" + "\n".join(found[:20])


def _played(script: Script, directory: Path, is_spread: bool) -> Recording:
    """Return the masked recording, in which the names and pages of the workers are those of a single server."""
    directory.mkdir()
    text = json.dumps(play(script, our_command(), directory, on_worker=WORKERS, is_spread=is_spread))
    for number in range(1, WORKERS + 1):
        for quote in ('"', '\\"'):  # also within an answer that an advisory quotes
            text = text.replace(f"{quote}conformance-{number}{quote}", f"{quote}conformance{quote}")
    recording = json.loads(text)
    for answer in recording["http"]:
        if isinstance(answer.get("json"), dict):
            answer["json"].pop("pyjs_workers", None)
    masked: Recording = shortened(Masker(script.text).recording(recording))
    return masked
