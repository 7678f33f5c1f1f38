"""Reads of a whole stream, through its leader or through any replica."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from tests.crash.servers import stream_seq_of
from tests.failover.link import Link

BATCH = 1000
WAIT_S = 10.0
TRIES = 10
Stored = list[tuple[int, str, bytes]]  # seq, subject, payload


async def messages(link: Link, stream: str, is_direct: bool = False) -> Stored:
    """Return all messages of a stream.

    With `is_direct`, the messages are read with direct gets. Any replica may answer these; a cluster may prefer the
    replica on the connected server. Without `is_direct`, a consumer of the leader delivers the messages.
    """
    return await (_direct(link, stream) if is_direct else _consumed(link, stream))


async def _direct(link: Link, stream: str) -> Stored:
    found: Stored = []
    while True:
        body = json.dumps({"seq": found[-1][0] + 1 if found else 1, "batch": BATCH}).encode()
        answers = await link.gather(
            f"$JS.API.DIRECT.GET.{stream}".encode(), body, wait_s=WAIT_S, expected=BATCH + 1
        )
        ended = [each for each in answers if each.headers.startswith(b"NATS/1.0 204")]
        some = [each for each in answers if b"Nats-Sequence" in each.headers]
        for each in some:
            named = dict(line.split(b": ", 1) for line in each.headers.split(b"\r\n") if b": " in line)
            found.append((int(named[b"Nats-Sequence"]), named[b"Nats-Subject"].decode(), each.payload))
        if not ended or not some or b"Nats-Num-Pending: 0" in ended[0].headers:
            return found


async def _consumer(link: Link, stream: str, first_seq: int) -> dict[str, Any]:
    """Create a consumer that begins at `first_seq`; repeat the request while there is no leader."""
    config = {
        "ack_policy": "none", "deliver_policy": "by_start_sequence", "opt_start_seq": first_seq,
        "inactive_threshold": 60_000_000_000,
    }  # fmt: skip
    made: dict[str, Any] = {}
    for _ in range(TRIES):
        made = await link.api(f"CONSUMER.CREATE.{stream}", {"stream_name": stream, "config": config}, WAIT_S)
        if "name" in made:
            return made
        await asyncio.sleep(0.1)  # pause between two requests; a refused request has no event to wait for
    raise AssertionError(f"no consumer of {stream}: {made}")


async def _consumed(link: Link, stream: str) -> Stored:
    """Return all messages of a stream, which consumers deliver.

    A change of the leader may end a pull. Then another consumer continues.
    """
    found: Stored = []
    for _ in range(TRIES):
        if await _consume_rest(link, stream, found):
            break
    return found  # if messages are still missing, the caller detects the gap


async def _consume_rest(link: Link, stream: str, found: Stored) -> bool:
    """Add the messages after those in `found`; return whether these are all that the new consumer announced."""
    made = await _consumer(link, stream, found[-1][0] + 1 if found else 1)
    pending = made["num_pending"]
    while pending > 0:
        batch = min(BATCH, pending)
        body = json.dumps({"batch": batch, "no_wait": True}).encode()
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{made['name']}".encode()
        answers = await link.gather(subject, body, wait_s=WAIT_S, expected=batch, are_deliveries=True)
        some = [each for each in answers if each.reply.startswith(b"$JS.ACK.")]
        if not some:
            told = [each.headers for each in answers]
            print(f"{stream}: a pull with {pending} messages pending got {told}", file=sys.stderr)
            return False
        last_seq = found[-1][0] if found else 0
        read = [(stream_seq_of(each.reply), each.subject.decode(), each.payload) for each in some]
        rest = [each for each in read if each[0] > last_seq]  # a new leader may deliver some messages again
        found += rest
        pending -= len(rest)
    await link.api(f"CONSUMER.DELETE.{stream}.{made['name']}")
    return True


def values_by_register(stored: Stored, register: str = "") -> dict[str, dict[str, int]]:
    """Return the sequence of each value, by register.

    If `register` is given, it is the register of all messages. Otherwise the register of a message is its subject.
    """
    found: dict[str, dict[str, int]] = {}
    for seq, subject, payload in stored:
        found.setdefault(register or subject, {})[payload.decode()] = seq
    return found
