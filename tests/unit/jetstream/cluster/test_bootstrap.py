"""The first membership of the metadata group: never two that elect, whatever the order, partitions and restarts."""

from __future__ import annotations

import random
from dataclasses import replace

import msgpack
import pytest

from pyjs.jetstream.cluster.bootstrap import (
    WORD_VERSION,
    Bootstrap,
    Do,
    Member,
    Membership,
    Step,
    Word,
    decode_word,
)
from pyjs.jetstream.cluster.fields import BadRow


def of(*nodes: int) -> Membership:
    """Return a membership of these servers, each with its first store."""
    return Membership(tuple(Member(node, 10 * node) for node in nodes))


def word(node: int, expected: int = 3, adopted: Membership | None = None, is_running: bool = False) -> Word:
    return Word(node, 10 * node, expected, adopted, is_running)


def step(*words: Word, adopted: Membership | None = None, expected: int = 3) -> Step:
    """Return the step of server 1 after it has received some words."""
    server = Bootstrap(1, 10, expected, adopted)
    for each in words:
        server.hear(each)
    return server.step()


def test_a_server_waits_for_all_that_its_routes_name() -> None:
    assert step() == (Do.WAIT, None, "2 of 3 servers that its routes name were not heard")
    assert step(word(2)) == (Do.WAIT, None, "1 of 3 servers that its routes name were not heard")
    assert step(word(2), word(1)) == (Do.WAIT, None, "1 of 3 servers that its routes name were not heard")


def test_it_adopts_all_of_them_in_the_order_of_their_numbers() -> None:
    assert step(word(3), word(2)) == (Do.ADOPT, of(1, 2, 3), "")


def test_a_single_server_adopts_itself_and_starts() -> None:
    server = Bootstrap(1, 10, 1)
    assert server.step() == (Do.ADOPT, of(1), "")
    server.adopt(of(1))
    assert server.step() == (Do.START, of(1), "")


def test_it_starts_when_more_than_half_have_adopted_the_same() -> None:
    mine = of(1, 2, 3)
    assert step(adopted=mine).do is Do.WAIT
    assert step(word(2), adopted=mine).reason == "more than 1 of 3 servers to adopt the same members"
    assert step(word(2, adopted=of(1, 2, 4)), adopted=mine).do is Do.WAIT
    assert step(word(2, adopted=mine), adopted=mine) == (Do.START, mine, "")


def test_half_of_four_are_not_enough() -> None:
    mine = of(1, 2, 3, 4)
    assert step(word(2, 4, mine), adopted=mine, expected=4).do is Do.WAIT
    assert step(word(2, 4, mine), word(3, 4, mine), adopted=mine, expected=4).do is Do.START


def test_a_store_that_is_not_a_member_does_not_count() -> None:
    mine = of(1, 2, 3)
    wiped = replace(word(2, adopted=mine), store=5)
    assert step(wiped, adopted=mine).do is Do.WAIT


def test_it_adopts_what_another_has_adopted_when_it_heard_all() -> None:
    theirs = of(1, 2, 3)
    assert step(word(2, adopted=theirs), word(3)) == (Do.ADOPT, theirs, "")
    assert step(word(2, adopted=theirs)).do is Do.WAIT


def test_a_new_store_adopts_nothing_that_has_its_old_one() -> None:
    theirs = Membership((Member(1, 99), Member(2, 20), Member(3, 30)))
    assert step(word(2, adopted=theirs), word(3)) == (
        Do.WAIT,
        None,
        "the store of this server is new: it joins when the others have a leader",
    )


def test_different_adoptions_are_left_to_the_operator() -> None:
    found = step(word(2, adopted=of(1, 2, 3)), word(3, adopted=of(1, 3, 4)))
    assert found.do is Do.WAIT
    assert found.reason.startswith("servers adopted different first members: empty the stores")


def test_servers_that_expect_different_numbers_adopt_nothing() -> None:
    found = step(word(2, 5), word(3))
    assert found.reason == (
        "server 2 names 5 servers in its routes and this one 3: name all servers in the routes of each"
    )


def test_more_servers_than_expected_adopt_nothing() -> None:
    found = step(word(2), word(3), word(4))
    assert found.reason == "4 servers are there and routes name 3: name all servers in the routes of each"


def test_a_server_joins_a_group_that_runs() -> None:
    theirs = of(2, 3, 4)
    assert step(word(2, 7, theirs, True)) == (Do.JOIN, theirs, "")
    assert step(word(2, 3, theirs, True), adopted=of(1, 2, 3)) == (Do.JOIN, theirs, "")


def test_a_member_starts_the_group_that_it_adopted_and_that_runs() -> None:
    mine = of(1, 2, 3)
    assert step(word(2, adopted=mine, is_running=True), adopted=mine) == (Do.START, mine, "")


def test_a_wiped_member_of_a_running_group_joins_it() -> None:
    theirs = Membership((Member(1, 99), Member(2, 20), Member(3, 30)))
    assert step(word(2, adopted=theirs, is_running=True)) == (Do.JOIN, theirs, "")
    assert step(adopted=theirs).reason == "a running group of the metadata to join again"


def test_the_vote_of_a_lost_store_is_in_no_second_group() -> None:
    """Server 1 adopts and loses its store; 2 has its report from before, 3 its report from after that."""
    first, second, third = Bootstrap(1, 10, 3), Bootstrap(2, 20, 3), Bootstrap(3, 30, 3)
    for server, others in ((first, (2, 3)), (second, (1, 3)), (third, (2,))):
        for node in others:
            server.hear(word(node))
    old = of(1, 2, 3)
    assert first.step() == (Do.ADOPT, old, "")
    first.adopt(old)
    assert first.step().do is Do.WAIT  # so it has not voted when its store is lost
    again = Bootstrap(1, 11, 3)
    again.hear(word(2))
    again.hear(word(3))
    new = Membership((Member(1, 11), Member(2, 20), Member(3, 30)))
    assert again.step() == (Do.ADOPT, new, "")
    again.adopt(new)
    third.hear(again.word)
    third.adopt(new)
    again.hear(third.word)
    assert third.step() == again.step() == (Do.START, new, "")  # two votes of three for the new one
    second.hear(first.word)
    assert second.step() == (Do.ADOPT, old, "")
    second.adopt(old)
    assert second.step() == (Do.START, old, "")  # the only vote is for the old membership
    second.hear(replace(third.word, is_running=True))
    assert second.step() == (Do.JOIN, new, "")


def test_five_vote_and_the_others_learn() -> None:
    assert of(1, 2, 3, 4, 5, 6, 7).voters == (1, 2, 3, 4, 5)
    assert of(1, 2, 3, 4, 5, 6, 7).learners == (6, 7)


def test_memberships_have_different_identities() -> None:
    assert of(1, 2, 3).identity == of(1, 2, 3).identity
    assert len({each.identity for each in (of(1, 2), of(1, 2, 3), Membership((Member(1, 11),)), of(1))}) == 4


@pytest.mark.parametrize("given", [word(7), word(7, 3, of(1, 2, 7)), word(7, 3, of(1, 2), True)])
def test_a_word_comes_back_from_its_bytes(given: Word) -> None:
    assert decode_word(given.encode()) == given


@pytest.mark.parametrize(
    "values",
    [
        [WORD_VERSION + 1, 7, 70, 3, [], False],
        [WORD_VERSION, 0, 70, 3, [], False],
        [WORD_VERSION, 7, 70, 0, [], False],
        [WORD_VERSION, 7, 70, 3, [[2, 1], [1, 1]], False],
        [WORD_VERSION, 7, 70, 3, [[1, 1], [1, 2]], False],
        [WORD_VERSION, 7, 70, 3, [], True],
        [WORD_VERSION, 7, 70, 3, [[1]], False],
        [WORD_VERSION, 7, 70, 3, [], False, 1],
    ],
)
def test_nonsense_is_no_word(values: list[object]) -> None:
    with pytest.raises(BadRow, match="a word about the first membership"):
        decode_word(msgpack.packb(values))


class Cluster:
    """Servers that start, send reports, restart and lose stores in random order, and vote as in Raft's first terms.

    A vote is remembered with the store. A candidate of a membership that got votes of more than half of its voters is
    its leader; two leaders of different memberships must never exist.
    """

    def __init__(self, chance: random.Random, size: int) -> None:
        self.chance = chance
        self.size = size
        self.stores = dict.fromkeys(range(1, size + 1), 0)
        self.durable: dict[Member, Membership] = {}
        self.voted: dict[Membership, set[Member]] = {}
        self.leaders: set[Membership] = set()
        self.joined: dict[Member, Membership] = {}
        self.servers = {node: self.made(node) for node in self.stores}
        self.wipes = 0
        self.reach = self.cut()
        self.knows = chance.choice(
            [0, 0.1, 1]
        )  # how often a server that has voted reports that its group has a leader
        self.quiet = chance.randint(0, 40 * size)  # number of acts before the first store is lost
        # How often servers send reports, take steps, restart, lose a store, and are cut off from each other, in this
        # run.
        self.rates = [40, chance.choice([5, 40]), 2, chance.choice([0, 2, 10]), chance.choice([0, 2, 10])]

    def made(self, node: int) -> Bootstrap:
        store = self.stores[node]
        return Bootstrap(node, store, self.size, self.durable.get(Member(node, store)))

    def play(self) -> None:
        self.quiet -= 1
        act = self.chance.choices(["speak", "step", "restart", "wipe", "cut"], self.rates)[0]
        node = self.chance.randint(1, self.size)
        if act == "speak":
            self.speak(node, self.chance.randint(1, self.size))
        elif act == "step":
            self.step(node)
        elif act == "restart":
            self.servers[node] = self.made(node)
        elif act == "wipe" and self.quiet < 0 and self.wipes < (self.size - 1) // 2:
            self.wipes += 1
            self.stores[node] += 1
            self.servers[node] = self.made(node)
        elif act == "cut":
            self.reach = self.cut()

    def cut(self) -> dict[int, set[int]]:
        """Return the servers that each server can reach: all, or a random half; this need not be symmetric."""
        if self.chance.random() < 0.3:
            return {node: set(self.stores) for node in self.stores}
        return {node: {each for each in self.stores if self.chance.random() < 0.5} for node in self.stores}

    def speak(self, node: int, to: int) -> None:
        if to in self.reach[node]:
            # A server may not know yet that its group has a leader.
            running = self.running(node) if self.chance.random() < self.knows else None
            said = self.servers[node].word
            said = replace(said, adopted=running, is_running=True) if running else said
            self.servers[to].hear(decode_word(said.encode()))

    def running(self, node: int) -> Membership | None:
        me = Member(node, self.stores[node])
        mine = self.joined.get(me) or self.durable.get(me)
        return (
            mine if mine in self.leaders and (me in self.joined or me in self.voted.get(mine, ())) else None
        )

    def step(self, node: int) -> None:
        server, me = self.servers[node], Member(node, self.stores[node])
        found = server.step()
        if found.do is Do.ADOPT:
            assert found.membership is not None
            assert me not in self.durable
            self.durable[me] = found.membership
            if self.chance.random() < 0.1:
                self.servers[node] = self.made(node)  # it ends between the write and the next step
            else:
                server.adopt(found.membership)
        elif found.do is Do.START:
            assert found.membership is not None
            votes = self.voted.setdefault(found.membership, set())
            votes.add(me)
            there = [each for each in votes if each.node in found.membership.voters]
            if 2 * len(there) > len(found.membership.voters):
                self.leaders.add(found.membership)
        elif found.do is Do.JOIN:
            assert found.membership is not None
            self.joined[me] = found.membership


def leaders(seed: int, size: int) -> int:
    """Return how many memberships have elected a leader at the end of a run."""
    cluster = Cluster(random.Random(seed), size)
    for _ in range(60 * size):
        cluster.play()
    return len(cluster.leaders)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 7])
def test_at_most_one_membership_elects(size: int) -> None:
    found = [leaders(seed, size) for seed in range(60)]
    assert [seed for seed, count in enumerate(found) if count > 1] == []
    assert 1 in found


def test_servers_that_stay_up_elect_after_any_order_of_words() -> None:
    for seed in range(50):
        cluster = Cluster(random.Random(seed), 3)
        cluster.reach = {node: set(cluster.stores) for node in cluster.stores}
        acts = [(act, node, to) for act in "ws" for node in (1, 2, 3) for to in (1, 2, 3)] * 6
        cluster.chance.shuffle(acts)
        for act, node, to in acts:
            if act == "w":
                cluster.speak(node, to)
            else:
                cluster.step(node)
        assert len(cluster.leaders) == 1
