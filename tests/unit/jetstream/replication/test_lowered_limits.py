"""Limits that an update lowers: the same messages remain on a replica whose process ended meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.support.replicated import Cluster

from pyjs.jetstream.cluster.assignments import stored_config
from pyjs.jetstream.stream import lowered_limits
from pyjs.store import trimming

STEP = 5
SUBJECTS = 15


class Ended(Exception):
    """Raised in place of the end of a process."""


@pytest.mark.parametrize("steps", [0, 3, 6])
def test_a_replica_that_ended_while_limits_were_lowered_has_the_same_messages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    # given: many subjects with one message, then many messages of one subject
    monkeypatch.setattr(lowered_limits, "STEP", STEP)
    monkeypatch.setattr(trimming, "STEP", STEP)
    cluster = Cluster(tmp_path)
    assignment = cluster.create(storage="file")
    for number in range(SUBJECTS):
        cluster.publish(1, f"s.{number}")
    cluster.publish(SUBJECTS, "s.x")
    cluster.settle()
    victim = cluster.followers()[0]
    store, ended = victim.stream.store, []

    def trimmed(given: Any, *limits: int) -> Iterator[None]:
        for number, _ in enumerate(trim_steps(given, *limits)):
            if given is store and number == steps:
                break
            yield
        if given is store:
            ended.append(limits)
            cluster.kill(victim.number)
            raise Ended

    trim_steps = trimming.trim_steps
    monkeypatch.setattr(lowered_limits, "trim_steps", trimmed)
    # when: both limits are lowered, and one replica ends after some steps
    lowered = replace(assignment.config, max_msgs=SUBJECTS + 3, max_msgs_per_subject=1)
    cluster.change(replace(assignment, stored=stored_config(lowered)))
    cluster.until(lambda: ended)
    monkeypatch.setattr(lowered_limits, "trim_steps", trim_steps)
    cluster.start(victim.number)
    cluster.settle()
    # then: the limit of the stream was applied before the one of each subject
    kept = SUBJECTS + 3
    assert cluster.same()["range"][:3] == (2 * SUBJECTS - kept + 1, 2 * SUBJECTS, 4)
