"""Comparison of two stores of a stream, of which one may have messages that the group has lost.

Both stores have applied the same entries up to some point. So if both have the same message under a sequence, all
earlier messages are the same too. If they have different messages under a sequence, all later ones are different. A
message that only one store has proves nothing, since it may have been removed from the other store.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pyjs.jetstream.replication.copy_batch import SEQS_MAX, encode_record
from pyjs.jetstream.replication.copying import ANSWER_NS, readable
from pyjs.jetstream.replication.repairing import fetch_steps

if TYPE_CHECKING:
    from collections.abc import Generator

    from pyjs.core.chore import Step
    from pyjs.jetstream.replication.copying import Answer
    from pyjs.jetstream.replication.repairing import Lacking
    from pyjs.store.store import StreamStore

BIG = 8  # maximum number of messages in one answer, since each may be large


class Common(NamedTuple):
    """The result of the comparison of a store with that of another replica."""

    seq: int  # up to this sequence, the messages of both stores are the same
    differs: bool  # whether a later message of the other store is different
    is_everything: bool  # whether the last message of this store is the same in the other store


def common_steps(
    machine: Lacking, store: StreamStore, node: int, answer: Answer
) -> Generator[Step, None, Common]:
    """Compare the messages of a store with those of the replica on `node`, from the last one backwards.

    The comparison ends at the first message that is the same in both stores.
    """
    top = seq = store.last_match(b">")
    count, differs = 1, False
    while seq:
        seqs: list[int] = []
        while seq and len(seqs) < count:
            seqs.append(seq)
            seq = store.last_match(b">", seq - 1) if seq > 1 else 0
        asked_ns = machine.stream.turn.now
        found = yield from fetch_steps(machine, node, seqs[::-1], answer)
        if not found and machine.stream.turn.now - asked_ns >= ANSWER_NS:
            return Common(0, differs, is_everything=False)  # the other replica does not answer
        for each in seqs:
            mine = readable(store, each) if each in found else None
            if mine is None:
                continue
            if encode_record(mine) == encode_record(found[each]):
                return Common(each, differs, each == top)
            differs = True
        count = min(2 * count, BIG if found else SEQS_MAX)
    return Common(0, differs, is_everything=top == 0)
