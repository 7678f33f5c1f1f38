"""Compares a damaged store after a restart with what was known about it before."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Protocol

from tests.crash.damages import Damage, Tree
from tests.crash.script import Known
from tests.crash.servers import id_header

STREAMS = ("ORDERS", "COPY")
# The time of a message, in an answer to MSG.GET and in the text of a StoredMessage.
TIME = re.compile(rb'("time":"|StoredMessage\(\d+, )([^",]+)')


class Speaks(Protocol):
    """The operations that the checks need, of a process or of a Node."""

    def try_api(self, name: str, /, **body: Any) -> dict[str, Any]: ...

    def raw_message(self, stream: str, seq: int) -> bytes: ...

    def publish(self, subject: bytes, payload: bytes, headers: bytes = b"") -> dict[str, Any]: ...

    def pull(self, stream: str, consumer: str, batch: int) -> list[tuple[int, bytes]]: ...


@dataclass
class Baseline:
    """The contents of an undamaged store, as the server's answers show them."""

    messages: dict[str, dict[int, bytes]] = field(default_factory=dict)  # stream -> seq -> answer to MSG.GET
    last: dict[str, int] = field(default_factory=dict)
    consumer: dict[str, Any] = field(default_factory=dict)


@dataclass
class Told:
    """Losses that the server reported: log lines above INF, and counters by stream (None if it has no counters)."""

    lines: list[str]
    lost: dict[str, int] | None


@dataclass
class Verdict:
    """The findings of one case: name of the violation -> examples.

    If a file was cut and looks like an unfinished write, consequences of the lost end are notes and not violations:
    sequences are reused, and data that was only recorded there is unknown.
    """

    is_cut: bool = False
    violations: dict[str, str] = field(default_factory=dict)
    notes: Counter[str] = field(default_factory=Counter)

    def add(self, name: str, text: str) -> None:
        """Record a violation."""
        self.violations.setdefault(name, text)

    def add_unless_cut(self, name: str, text: str) -> None:
        """Record a violation, or a note if an end was cut."""
        if self.is_cut:
            self.notes[f"after a cut: {name}"] += 1
        else:
            self.add(name, text)


def observe(speaker: Speaks) -> Baseline:
    """Read the whole contents of an undamaged store."""
    found = Baseline()
    for name in STREAMS:
        last = speaker.try_api(f"STREAM.INFO.{name}")["state"]["last_seq"]
        found.last[name] = last
        found.messages[name] = _messages(speaker, name, last)
    found.consumer = _consumer(speaker)
    return found


def check_baseline(baseline: Baseline, known: Known) -> None:
    """Assert that the undamaged store has everything that its client was told."""
    assert set(baseline.messages["ORDERS"]) == set(known.messages)
    assert baseline.last["ORDERS"] == known.last_seq


def judge(
    speaker: Speaks, tree: Tree, damages: tuple[Damage, ...], known: Known, baseline: Baseline, told: Told
) -> Verdict:
    """Compare the contents of the store after the damages with those before."""
    is_cut = tree.is_cut(damages)
    verdict = Verdict(is_cut)
    may_lose: dict[str, set[int]] = {name: set() for name in STREAMS}
    for damage in damages:
        stream, seqs = tree.hit_seqs(damage)
        if stream:
            may_lose[stream] |= seqs
    lost = {}
    for name in STREAMS:
        info = speaker.try_api(f"STREAM.INFO.{name}")
        if "error" in info or not info:
            verdict.add("stream gone", f"{name}: {info}")
            continue
        lost[name] = _judge_messages(speaker, name, baseline, may_lose[name], verdict)
        if lost[name]:
            _judge_told(name, lost[name], told, verdict)
    if "ORDERS" in lost:
        _judge_consumer(speaker, damages, known, baseline, lost["ORDERS"], verdict)
        _judge_duplicates(speaker, known, lost["ORDERS"], verdict)
        _judge_sequence(speaker, baseline, verdict)
    if len(lost) == len(STREAMS):
        verdict.notes["messages lost"] += sum(map(len, lost.values()))
    return verdict


def _messages(speaker: Speaks, stream: str, last: int) -> dict[int, bytes]:
    found = ((seq, speaker.raw_message(stream, seq)) for seq in range(1, last + 1))
    return {seq: answer for seq, answer in found if answer}


def _consumer(speaker: Speaks) -> dict[str, Any]:
    info = speaker.try_api("CONSUMER.INFO.ORDERS.worker")
    if "error" in info or not info:
        return {}
    keys = ("num_ack_pending", "num_pending", "num_redelivered")
    positions = {key: info[key]["stream_seq"] for key in ("delivered", "ack_floor")}
    return {**positions, **{key: info[key] for key in keys}}


def _judge_messages(
    speaker: Speaks, name: str, baseline: Baseline, may_lose: set[int], verdict: Verdict
) -> set[int]:
    before = baseline.messages[name]
    now = _messages(speaker, name, baseline.last[name])
    lost = set(before) - set(now)
    if lost - may_lose:
        verdict.add("others lost", f"{name}: {_span(lost - may_lose)}, hit was {_span(may_lose)}")
    changed = [seq for seq in now if seq in before and now[seq] != before[seq]]
    if name == "COPY":  # a lost message at its end is copied again, with a later time
        again = [seq for seq in changed if seq in may_lose and _is_later_copy(before[seq], now[seq])]
        verdict.notes["copied again"] += len(again)
        changed = [seq for seq in changed if seq not in again]
    if changed:
        verdict.add_unless_cut("altered", f"{name}: {changed[:5]}")
    risen = set(now) - set(before)
    if risen:
        verdict.add_unless_cut("risen", f"{name}: {_span(risen)} was removed and is there again")
    return lost


def _is_later_copy(before: bytes, now: bytes) -> bool:
    """Return whether two texts of a message differ only in their times, and the second time is later."""
    old, new = TIME.search(before), TIME.search(now)
    if old is None or new is None or TIME.sub(rb"\1", before, count=1) != TIME.sub(rb"\1", now, count=1):
        return False
    if old[1].startswith(b"StoredMessage"):
        return int(old[2]) < int(new[2])
    return _moment(old[2]) < _moment(new[2])


def _moment(text: bytes) -> tuple[bytes, bytes]:
    """Return a time in RFC 3339 as seconds and digits of the fraction, which compare in the order of time."""
    seconds, _, fraction = text.rstrip(b"Z").partition(b".")
    return seconds, fraction


def _judge_told(name: str, lost: set[int], told: Told, verdict: Verdict) -> None:
    if not told.lines:
        verdict.add_unless_cut("silent", f"{name}: {_span(lost)} lost, and no line of the log says so")
    elif told.lost is not None and told.lost.get(name, 0) < len(lost):
        verdict.add_unless_cut("miscounted", f"{name}: {_span(lost)} lost, counted {told.lost.get(name, 0)}")


def _judge_consumer(
    speaker: Speaks,
    damages: tuple[Damage, ...],
    known: Known,
    baseline: Baseline,
    lost: set[int],
    verdict: Verdict,
) -> None:
    found = _consumer(speaker)
    copies = {damage.path[-1] for damage in damages if "/consumers." in damage.path}
    if not found and copies >= {"a", "b"}:
        verdict.notes["consumer missing, both copies of the list damaged"] += 1
        return
    if not found:
        verdict.add("consumer gone", "CONSUMER.INFO has none")
        return
    owed = known.unsettled() - lost
    if any(seq <= found["ack_floor"] for seq in owed):
        verdict.add("floor ahead", f"floor {found['ack_floor']}, owed {sorted(owed)[:3]}")
    if found["num_ack_pending"] + found["num_pending"] < len(owed):
        verdict.add("floor ahead", f"{found} promises less than the {len(owed)} that are owed")
    own_files = any("/consumers" in damage.path or "/obs/" in damage.path for damage in damages)
    if not own_files and not lost and found != baseline.consumer:
        verdict.add("consumer changed", f"{found}, was {baseline.consumer}")


def _judge_duplicates(speaker: Speaks, known: Known, lost: set[int], verdict: Verdict) -> None:
    kept = [(each, seq) for each, seq in known.ids.items() if seq not in lost and seq in known.messages]
    for message_id, seq in kept[:1] + kept[len(kept) // 2 :][:1] + kept[-1:]:
        answer = speaker.publish(b"orders.again", b"again", id_header(message_id))
        if not answer.get("duplicate") or answer.get("seq") != seq:
            verdict.add("duplicate taken", f"{message_id.decode()} of {seq}: {answer}")


def _judge_sequence(speaker: Speaks, baseline: Baseline, verdict: Verdict) -> None:
    answer = speaker.publish(b"orders.new", b"new")
    if "seq" not in answer:
        verdict.add("no new message", json.dumps(answer))
    elif answer["seq"] <= baseline.last["ORDERS"]:
        verdict.add_unless_cut("sequence reused", f"{answer} after {baseline.last['ORDERS']}")


def _span(seqs: set[int]) -> str:
    return f"{len(seqs)} from {min(seqs)} to {max(seqs)}" if seqs else "none"
