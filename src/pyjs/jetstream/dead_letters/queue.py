"""The waiting letters of one consumer, in the order in which they are sent.

Letters that were never refused come first, in the order in which their messages were given up. Each attempt then
sends every refused letter again, beginning with the letter whose last sending is the longest ago. Each operation
takes O(1) for each letter.

While letters wait, messages are acknowledged and removed, and the queue is not informed. A sequence that is no longer
in `AckState.exhausted` is therefore stale, and is skipped when it is reached. Invariant: each sequence in
`AckState.exhausted` is in `_unsent`, `_refused` or `_taken`.

This module knows nothing of streams and answers.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyjs.jetstream.consumer.acks.state import AckState

STALE_STEP = 4096  # stale sequences skipped in one step: about half a millisecond


class LetterQueue:
    """A queue of the sequences of given-up messages whose letters are not stored yet."""

    def __init__(self, acks: AckState) -> None:
        self._acks = acks
        self.begin()

    def begin(self) -> None:
        """Fill the queue with all given-up messages of the consumer, and forget earlier refusals."""
        self._unsent = self._acks.unsent = deque(self._acks.exhausted)  # AckState appends what is given up
        self._refused: OrderedDict[int, str] = OrderedDict()  # why, by sequence; sent again in this order
        self._again = 0  # how many of them this attempt has not sent
        self._taken: dict[int, None] = {}  # by the last `take`, and not refused since

    def has_more(self) -> bool:
        """Return whether this attempt has letters to send."""
        return bool(self._unsent or self._again)

    def begin_attempt(self) -> None:
        """Begin a new attempt, in which each refused letter is sent once more."""
        self._return_taken()
        exhausted = self._acks.exhausted
        if len(self._unsent) + len(self._refused) > 2 * len(exhausted) + STALE_STEP:
            self._unsent = self._acks.unsent = deque(seq for seq in self._unsent if seq in exhausted)
            self._refused = OrderedDict(each for each in self._refused.items() if each[0] in exhausted)
        self._again = len(self._refused)

    def take(self, count: int) -> list[int] | None:
        """Return the sequences of the next letters of this attempt, at most `count`.

        The list is empty if the attempt has no more letters. None is returned if this call has found only stale
        sequences; the caller should call again. If a letter is neither refused nor acknowledged before the next call,
        that call returns the letter again.
        """
        self._return_taken()
        take = self._next_unsent if self._unsent else self._next_refused
        seqs: list[int] = []
        skipped = 0
        while len(seqs) < count and skipped < STALE_STEP and (seq := take()):
            if seq in self._acks.exhausted:
                seqs.append(seq)
            else:
                skipped += 1
        self._taken = dict.fromkeys(seqs)
        return None if skipped and not seqs else seqs

    def refuse(self, seq: int, problem: str) -> None:
        """Postpone a letter to the next attempt; `problem` is the reason."""
        self._taken.pop(seq, None)
        self._refused[seq] = problem

    def first_refusal(self) -> tuple[int, str] | None:
        """Return the sequence of the first refused letter and the reason of its refusal, or None if there is none.

        Only the first STALE_STEP refused sequences are examined.
        """
        exhausted, first = self._acks.exhausted, islice(self._refused.items(), STALE_STEP)
        return next((each for each in first if each[0] in exhausted), None)

    def _return_taken(self) -> None:
        for seq in reversed(self._taken):
            if seq not in self._acks.exhausted:
                self._refused.pop(seq, None)
            elif seq in self._refused:
                self._refused.move_to_end(seq, last=False)
                self._again += 1
            else:
                self._unsent.appendleft(seq)
        self._taken = {}

    def _next_unsent(self) -> int:
        return self._unsent.popleft() if self._unsent else 0

    def _next_refused(self) -> int:
        if not self._again:
            return 0
        self._again -= 1
        seq = next(iter(self._refused))
        if seq in self._acks.exhausted:
            self._refused.move_to_end(seq)  # its reason stays until there is an answer
        else:
            del self._refused[seq]
        return seq
