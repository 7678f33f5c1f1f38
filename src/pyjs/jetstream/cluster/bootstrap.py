"""Agreement of servers with empty stores on the first members of the metadata group.

Each server repeatedly sends a `Word` to every other server: its number, the random number of its store, the number
of servers in its configuration (`expected`), and the membership that it has adopted. A membership is the list of all
expected servers as pairs (number, store). The rules:

1. A store adopts at most one membership, ever, and this membership is durable before it is sent.
2. A server adopts a membership only after it has a word of every expected server, and only if all memberships in
   these words are equal. If the words have no membership, the server creates one from the servers that sent words.
   The membership must contain the server itself, by number and store.
3. A server starts the group, and votes, only in two cases: if words of more than half of the expected servers, itself
   included, have the membership that it adopted, or if a word reports that the group is running.
4. A server that learns of a running group but cannot start it joins this group as a learner with a new incarnation.

Claim: two memberships M and M' never both elect a leader, as long as all servers name the same servers and fewer than
half of the stores are lost. Both majorities of voters are of the same servers, so some server x voted in both. By
rule 1 x had two stores: it voted in M with the first and lost it. By rule 3 more than half of the servers had adopted
M before that vote, and one of them, y, still has its store. The second store of x adopted M' after a word of y (rule
2), and that word contained M, so x would not have adopted M'.

The assumptions are checked where possible: servers that expect different numbers of servers, or more servers than
expected, adopt nothing and report the reason. Votes of different memberships never mix, since `identity` is in the
name of the group.

This module uses no clocks, connections or files: `step` returns the next action.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

import xxhash

from pyjs.jetstream.cluster.fields import BadRow, Row, pack, unpack
from pyjs.jetstream.cluster.servers import NODE_MAX, SERVERS_MAX, STORE_MAX

if TYPE_CHECKING:
    from typing import Any

WORD_VERSION = 1
WORD_SIZE_MAX = 64 << 10  # maximum bytes of an encoded word
VOTERS_MAX = 5


class Member(NamedTuple):
    """A server, together with its store."""

    node: int
    store: int


@dataclass(frozen=True, slots=True)
class Membership:
    """The servers of a new cluster, in the order of their numbers."""

    members: tuple[Member, ...]

    @property
    def voters(self) -> tuple[int, ...]:
        """The servers that vote at first; the rest are learners."""
        return tuple(member.node for member in self.members[:VOTERS_MAX])

    @property
    def learners(self) -> tuple[int, ...]:
        """The servers that do not vote at first."""
        return tuple(member.node for member in self.members[VOTERS_MAX:])

    @property
    def identity(self) -> int:
        """A 64-bit digest of the membership."""
        digest: int = xxhash.xxh64_intdigest(pack(self.to_row()))
        return digest

    def to_row(self) -> list[Any]:
        """Return the members as lists of number and store."""
        return [list(member) for member in self.members]


@dataclass(frozen=True, slots=True)
class Word:
    """A message between servers: the sender's number, store and configuration, and the membership it adopted."""

    node: int
    store: int
    expected: int  # number of servers in the sender's configuration, including itself
    adopted: Membership | None = None
    # the sender's group has had a leader; `adopted` is then the group's first membership
    is_running: bool = False

    def encode(self) -> bytes:
        """Return the bytes to send."""
        adopted = self.adopted.to_row() if self.adopted is not None else []
        return pack([WORD_VERSION, self.node, self.store, self.expected, adopted, self.is_running])


def decode_word(data: bytes) -> Word:
    """Return the word in `data`.

    Raises:
        BadRow: the bytes are not a valid word.
    """
    row = unpack(data, "a word about the first membership", WORD_SIZE_MAX)
    row.number("version", WORD_VERSION, WORD_VERSION)
    node, store = row.number("node", 1, NODE_MAX), row.number("store", 0, STORE_MAX)
    expected = row.number("expected", 1, SERVERS_MAX)
    members = tuple(_take_member(each) for each in row.rows("adopted", SERVERS_MAX))
    is_running = row.flag("is_running")
    row.end()
    nodes = [member.node for member in members]
    if nodes != sorted(set(nodes)) or (is_running and not members):
        raise BadRow(f"adopted of {row.what} has no order, or is empty")
    return Word(node, store, expected, Membership(members) if members else None, is_running)


def _take_member(row: Row) -> Member:
    member = Member(row.number("node", 1, NODE_MAX), row.number("store", 0, STORE_MAX))
    row.end()
    return member


class Do(Enum):
    """The next action of a server."""

    WAIT = "wait"  # wait for more words; `reason` names the missing ones
    ADOPT = "adopt"  # make `membership` durable, then call `Bootstrap.adopt`
    START = "start"  # open the group of `membership`; call `step` again until the group has had a leader
    # close a group that was started, and ask the running group of `membership` to add this server
    JOIN = "join"


class Step(NamedTuple):
    """The next action of a server, with its details."""

    do: Do
    membership: Membership | None = None
    reason: str = ""


class Bootstrap:
    """The bootstrap of one server, until its group runs. A server whose group has a log needs no bootstrap."""

    def __init__(self, node: int, store: int, expected: int, adopted: Membership | None = None) -> None:
        self._me = Member(node, store)
        self.expected = expected  # may change while the addresses of routes are being resolved
        self._adopted = adopted  # the adopted membership, which is durable
        self._words: dict[
            int, Word
        ] = {}  # the last word that each other server has sent since this process started

    @property
    def word(self) -> Word:
        """The current word of this server."""
        return Word(self._me.node, self._me.store, self.expected, self._adopted)

    def hear(self, word: Word) -> None:
        """Store a word that another server sent to this one."""
        if word.node != self._me.node:
            self._words[word.node] = word

    def adopt(self, membership: Membership) -> None:
        """Record that this server has made `membership` durable."""
        assert self._adopted is None
        assert self._me in membership.members
        self._adopted = membership

    def step(self) -> Step:
        """Return the next action. Call this method again after each new word."""
        running = next((word.adopted for word in self._words.values() if word.is_running), None)
        if running is not None:
            is_mine = running == self._adopted and self._me in running.members
            return Step(Do.START if is_mine else Do.JOIN, running)
        return self._adopt_step() if self._adopted is None else self._start_step(self._adopted)

    def _start_step(self, adopted: Membership) -> Step:
        if self._me not in adopted.members:
            return Step(Do.WAIT, adopted, "a running group of the metadata to join again")
        said = 1 + sum(
            word.adopted == adopted and Member(word.node, word.store) in adopted.members
            for word in self._words.values()
        )
        if 2 * said > len(adopted.members):
            return Step(Do.START, adopted)
        return Step(
            Do.WAIT, adopted, f"more than {said} of {len(adopted.members)} servers to adopt the same members"
        )

    def _adopt_step(self) -> Step:
        problem = self._disagreement()
        if problem:
            return Step(Do.WAIT, None, problem)
        heard = {word.adopted for word in self._words.values() if word.adopted is not None}
        if len(heard) > 1:
            return Step(
                Do.WAIT,
                None,
                "servers adopted different first members: empty the stores of those that have no streams",
            )
        everyone = sorted([self._me, *(Member(word.node, word.store) for word in self._words.values())])
        membership = heard.pop() if heard else Membership(tuple(everyone))
        if self._me not in membership.members:
            return Step(
                Do.WAIT, None, "the store of this server is new: it joins when the others have a leader"
            )
        return Step(Do.ADOPT, membership)

    def _disagreement(self) -> str:
        """Return the reason why no membership can be adopted yet, or "" if one can."""
        remedy = "name all servers in the routes of each"
        for node, word in sorted(self._words.items()):
            if word.expected != self.expected:
                return (
                    f"server {node} names {word.expected} servers in its routes"
                    f" and this one {self.expected}: {remedy}"
                )
        count = 1 + len(self._words)
        if count > self.expected:
            return f"{count} servers are there and routes name {self.expected}: {remedy}"
        if count < self.expected:
            return f"{self.expected - count} of {self.expected} servers that its routes name were not heard"
        return ""
