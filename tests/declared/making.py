"""Random histories of edits: the files, and how each is applied. A seed always gives the same history."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

MS = 1_000_000
SECOND = 1_000 * MS
STREAMS = ("A", "B", "C", "D")
SUBJECTS = ("a", "b.*", "c.>", "d", "e.x")
CHOICES: dict[str, tuple[Any, ...]] = {
    "description": ("one", "two", 'with "quotes"'),
    "max_msgs": (3, 100, -1, 0),
    "max_bytes": (1 << 20, 1 << 30),
    "max_age": (60 * SECOND, 3600 * SECOND),
    "max_msgs_per_subject": (1, 5),
    "max_msg_size": (100, 1000),
    "discard": ("old", "new"),
    "retention": ("limits", "interest", "workqueue"),
    "storage": ("file", "memory"),
    "duplicate_window": (100 * MS, 30 * SECOND),
    "allow_direct": (True, False),
    "allow_rollup_hdrs": (True,),
    "deny_delete": (True,),
    "compression": ("s2", "none"),
    "metadata": ({"team": "x"}, {"team": "y", "a.b": "c"}),
    "max_consumers": (1, 10),
    "republish": ({"src": ">", "dest": "copies.>"},),
    "consumer_limits": ({"max_ack_pending": 50},),
}
CONSUMER_CHOICES: dict[str, tuple[Any, ...]] = {
    "ack_policy": ("explicit", "all", "none"),
    "ack_wait": (5 * SECOND, 60 * SECOND),
    "max_deliver": (3, 7, -1),
    "backoff": ([SECOND, 2 * SECOND],),
    "max_ack_pending": (10, 500),
    "description": ("c1", "c2"),
    "deliver_policy": ("all", "new", "last"),
    "inactive_threshold": (3600 * SECOND,),
    "metadata": ({"k": "v"},),
}
DURATIONS = ("max_age", "duplicate_window", "ack_wait", "inactive_threshold", "ttl")


class Way(Enum):
    """How a file is applied."""

    RELOAD = "reload"
    RESTART = "restart"
    KILL = "kill -9 during the reload"
    KILL_START = "kill -9 during the start"


@dataclass(frozen=True)
class Step:
    """One edit, what clients do before it, and how it is applied."""

    streams: dict[str, dict[str, Any]]
    consumers: dict[str, dict[str, dict[str, Any]]]
    kv: dict[str, dict[str, Any]]
    allowed: frozenset[str]  # streams with allow_data_loss
    drift: tuple[tuple[str, dict[str, Any]], ...]  # requests of clients before the edit
    way: Way
    kill_after_ms: float

    def file(self) -> str:
        """Return the blocks of the file."""
        parts = ["streams {"]
        for name, options in self.streams.items():
            more = ", allow_data_loss: true" if name in self.allowed else ""
            parts.append(f"  {name} {{ {_map(options)}{more} }}")
        parts.append("}\nconsumers {")
        for stream, consumers in self.consumers.items():
            inner = ", ".join(f"{name} {{ {_map(options)} }}" for name, options in consumers.items())
            parts.append(f"  {stream} {{ {inner} }}")
        parts.append("}\nkv {")
        parts += [f"  {name} {{ {_map(options)} }}" for name, options in self.kv.items()]
        return "\n".join([*parts, "}"])


def _map(options: dict[str, Any]) -> str:
    return ", ".join(f"{name}: {_value(name, value)}" for name, value in options.items())


def _value(name: str, value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f'"{key}": {_value("", each)}' for key, each in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(_value(name, each) for each in value) + "]"
    if name in DURATIONS and isinstance(value, int) and value % SECOND == 0 and value % 7:
        return f'"{value // SECOND}s"'
    return json.dumps(value)


def make(seed: int, steps: int = 5, nodes: int = 1) -> list[Step]:
    """Return the history of a seed; on several nodes, streams have one replica or three."""
    rng = random.Random(seed)
    return [_replicated(_step(rng), rng) if nodes > 1 else _step(rng) for _ in range(steps)]


def _replicated(step: Step, rng: random.Random) -> Step:
    streams = {
        name: {**options, "num_replicas": rng.choice((1, 3))} for name, options in step.streams.items()
    }
    return replace(step, streams=streams)


def _step(rng: random.Random) -> Step:
    streams: dict[str, dict[str, Any]] = {}
    free = list(SUBJECTS)
    rng.shuffle(free)
    for name in STREAMS:
        if rng.random() < 0.7 and free:
            streams[name] = {"subjects": [free.pop() for _ in range(min(len(free), rng.choice((1, 1, 2))))]}
            streams[name] |= _some(rng, CHOICES, 4)
    if "A" in streams and rng.random() < 0.2:
        streams["M"] = {"mirror": {"name": "A"}}
    consumers: dict[str, dict[str, dict[str, Any]]] = {}
    for stream in (*streams, "A"):
        if rng.random() < 0.5:
            names = rng.sample(("x", "y", "z"), rng.choice((1, 2)))
            consumers[stream] = {name: _some(rng, CONSUMER_CHOICES, 3) for name in names}
    kv = (
        {"K": {"history": rng.choice((1, 5)), "ttl": rng.choice((0, 60 * SECOND))}}
        if rng.random() < 0.4
        else {}
    )
    allowed = frozenset(name for name in streams if rng.random() < 0.3)
    way = rng.choices(list(Way), (5, 2, 2, 1))[0]
    return Step(streams, consumers, kv, allowed, _drift(rng), way, rng.random() * 40)


def _some(rng: random.Random, choices: dict[str, tuple[Any, ...]], most: int) -> dict[str, Any]:
    names = rng.sample(list(choices), rng.randint(0, most))
    return {name: rng.choice(choices[name]) for name in names}


def _drift(rng: random.Random) -> tuple[tuple[str, dict[str, Any]], ...]:
    """Return what clients do meanwhile: messages, another configuration, a deletion."""
    done: list[tuple[str, dict[str, Any]]] = [
        ("PUB", {"subject": rng.choice(("a", "b.1", "c.1", "d"))})
    ] * rng.randint(0, 5)
    name = rng.choice(STREAMS)
    if rng.random() < 0.3:
        done.append((f"STREAM.DELETE.{name}", {}))
    if rng.random() < 0.4:
        config = {"name": f"X{name}", "subjects": [rng.choice(SUBJECTS)], **_some(rng, CHOICES, 2)}
        done.append((f"STREAM.CREATE.X{name}", config))
    if rng.random() < 0.4:
        done.append(
            (f"STREAM.UPDATE.{name}", {"name": name, "subjects": ["a"], "description": "changed by a client"})
        )
    if rng.random() < 0.2:
        done.append((f"CONSUMER.DELETE.{name}.x", {}))
    if rng.random() < 0.2:
        done.append((f"CONSUMER.PAUSE.{name}.x", {"pause_until": "2035-01-01T00:00:00Z"}))
    return tuple(done)
