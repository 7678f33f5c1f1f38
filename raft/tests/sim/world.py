"""One seed: nodes, network, disks, clients and faults, then a time without faults in which all nodes must agree."""

from __future__ import annotations

from random import Random

from raft.tests.sim.judge import Judge, Violation
from raft.tests.sim.net import SimNet, Weather
from raft.tests.sim.node import INSTALL_TICKS, SimNode

from pyjs_raft import Change, Conf, Refused, Role, peer_id

GROUPS = (1, 2)
TROUBLE_TICKS = 500
SETTLE_TICKS = 120
LIMP_TICKS = 320
CRASHED = "crashed: "
CALM_TICKS = 400


class World:
    """The run of one seed."""

    node_class: type[SimNode] = SimNode
    storms = 0.25  # share of seeds with long elections and short outages

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.is_storm = self.rng.random() < self.storms
        self.is_quiet = not self.is_storm and self.rng.random() < 0.3  # clients pause, so that groups sleep
        self.net = SimNet(Random(seed + 1), self._weather())
        self.judge = Judge()
        count = self.rng.choice((3, 3, 4, 5))
        numbers = list(range(1, count + 1))
        self.nodes = {
            number: self.node_class(
                number, Random(seed * 31 + number), self.net, self.judge, [n for n in numbers if n != number]
            )
            for number in numbers
        }
        self.now = 0
        self.down: dict[int, int] = {}  # node -> time at which it restarts
        self.body = 0
        self._create(count)

    def _weather(self) -> Weather:
        rng = self.rng
        return Weather(
            drop=rng.choice((0.0, 0.02, 0.1)),
            repeat=rng.choice((0.0, 0.05)),
            damage=rng.choice((0.0, 0.01)),
            delay_max=8 if self.is_storm else rng.choice((0, 1, 4)),
        )

    def _create(self, count: int) -> None:
        for group in GROUPS:
            voters = [peer_id(n) for n in self.nodes if n <= (5 if count == 5 else 3)]
            for number, node in self.nodes.items():
                node.create(group, Conf(voters) if peer_id(number) in voters else Conf())
        for node in self.nodes.values():
            node.start(0)

    def run(self) -> None:
        """Run the seed.

        Raises:
            Violation: an invariant was violated; the text describes it.
        """
        for _ in range(TROUBLE_TICKS):
            self._trouble()
            self._work()
            self._step()
        self._heal()
        if self.is_quiet:
            self._limp()
        self._hasten()
        for at in range(CALM_TICKS):
            if at % 10 == 0:
                self._publish()
            self._step()
        self._check_end()

    def _step(self) -> None:
        self.now += 1
        for source, target, data, is_damaged in self.net.arrived(self.now):
            node = self.nodes[target]
            if node.is_running(self.now):  # batches for a paused node are lost here
                node.now = self.now
                node.receive(source, data, is_damaged=is_damaged)
        for number in [number for number, at in self.down.items() if at <= self.now]:
            del self.down[number]
            self.nodes[number].start(self.now)
        for node in self.nodes.values():
            if node.is_running(self.now):
                node.turn(self.now)

    # -- clients ---------------------------------------------------------------------------------------------

    def _work(self) -> None:
        rest = 0.05 if self.is_quiet else 1
        if self.rng.random() < 0.3 * rest:
            self._publish()
        if self.rng.random() < 0.2 * rest:
            node, group = self.rng.choice(list(self.nodes.values())), self.rng.choice(GROUPS)
            if node.is_running(self.now) and group not in node.closed:
                node.read(group)
        if self.rng.random() < 0.03:
            node = self.rng.choice(list(self.nodes.values()))
            if node.is_running(self.now):
                node.compact(self.rng.choice(GROUPS))
        if self.rng.random() < 0.02:
            self._operate(self.rng.choice(GROUPS))

    def _publish(self) -> None:
        """Propose at every node, since a client does not know the leader."""
        group = self.rng.choice(GROUPS)
        for node in self.nodes.values():
            if node.is_running(self.now):
                self.body += 1
                node.propose(group, self.body.to_bytes(40, "little"))

    def _operate(self, group: int) -> None:
        """Transfer the leadership, or change the membership."""
        for node in self.nodes.values():
            if not self._leads(node, group):
                continue
            conf = node.engine.status(group).conf
            other = self.nodes[self.rng.choice(node.others)].peer(group)
            try:
                if self.rng.random() < 0.4 and other in conf.voters:
                    node.engine.transfer(group, other)
                else:
                    node.engine.change(group, self._changes(conf, other))
            except Refused:
                pass

    def _leads(self, node: SimNode, group: int) -> bool:
        is_there = node.is_running(self.now) and group not in node.closed
        return is_there and node.engine.status(group).role == Role.LEADER

    def _changes(self, conf: Conf, other: int) -> list[tuple[int, int]]:
        dead = [p for p in conf.voters if p + 1 == other]
        if dead and len(conf.voters) > 3:
            return [(int(Change.REMOVE), dead[0])]
        if other in conf.learners:
            changes = [(Change.ADD_VOTER, other)]
            if len(conf.voters) > 3 and self.rng.random() < 0.5:
                changes.append((Change.REMOVE, self.rng.choice([p for p in conf.voters if p != other])))
            return [(int(op), peer) for op, peer in changes]
        if other not in conf.voters:
            return [(int(Change.ADD_LEARNER), other)]
        if len(conf.voters) > 3:
            return [(int(self.rng.choice((Change.ADD_LEARNER, Change.REMOVE))), other)]
        return [(int(Change.ADD_VOTER), other)]

    # -- faults ----------------------------------------------------------------------------------------------

    def _trouble(self) -> None:
        if self.rng.random() >= (0.15 if self.is_storm else 0.03):
            return
        node = self.nodes[self.rng.choice(list(self.nodes))]
        other = self.rng.choice(node.others)
        what = self.rng.randrange(8 if self.is_storm else 10)
        if what == 0 and node.is_up:
            self._down(node, power=False)
        elif what in (1, 2) and node.is_up:
            self._down(node, power=True)
        elif what == 3 and self.rng.random() < 0.5:
            for each in self.nodes.values():
                if each.is_up:
                    self._down(each, power=True)
        elif what == 4:
            node.paused_until = self.now + self.rng.randrange(5, 60)
        elif what == 5:
            self.net.cuts.add((node.number, other))  # one way
        elif what == 6:
            for peer in node.others:
                self.net.cuts |= {(node.number, peer), (peer, node.number)}
        elif what == 8:
            for each in self.nodes.values():
                for group in GROUPS:
                    if self._leads(each, group) and self.rng.random() < 0.5:
                        each.close(group, self.now + self.rng.randrange(1, 300))
        elif what == 9:
            if node.is_running(self.now) and self.judge.replaced == 0 and len(self.nodes) > 3:
                node.replace(self.rng.choice(GROUPS))
        else:
            self.net.cuts.clear()

    def _down(self, node: SimNode, *, power: bool) -> None:
        if power:
            node.cut_power()
        else:
            node.stop()
        self.down[node.number] = self.now + self.rng.randrange(1, 4 if self.is_storm else 60)

    def _heal(self) -> None:
        self.net.cuts.clear()
        self.net.weather = Weather()
        for node in self.nodes.values():
            node.paused_until = 0
        for number in self.down:
            self.down[number] = self.now + 1

    def _hasten(self) -> None:
        """End all long operations soon."""
        for node in self.nodes.values():
            node.install_ticks = INSTALL_TICKS[:1]
            if node.is_up:
                node.closed = dict.fromkeys(node.closed, self.now)
                node.installs = [
                    (min(due, self.now + 30), source, what) for due, source, what in node.installs
                ]

    def _limp(self) -> None:
        """While all groups sleep, lose a leader or only its group; another must lead before the lost one returns."""
        for _ in range(SETTLE_TICKS):
            self._step()
        group = self.rng.choice(GROUPS)
        for node in [node for node in self.nodes.values() if self._leads(node, group)]:
            self.judge.lost_asleep += node.engine.status(group).asleep
            if self.rng.random() < 0.5:
                node.close(group, self.now + LIMP_TICKS + 1)
            else:
                self._down(node, power=True)
                self.down[node.number] = self.now + LIMP_TICKS + 1
        for _ in range(LIMP_TICKS):
            self._step()
        if self._can_lead(group) and not any(self._leads(node, group) for node in self.nodes.values()):
            self.judge.fail(f"group {group}: no leader while a majority is up")

    def _can_lead(self, group: int) -> bool:
        """Return whether a majority is certainly running, and one of its nodes can be elected."""
        up = [node for node in self.nodes.values() if node.is_running(self.now) and group not in node.closed]
        confs = [node.engine.status(group).conf for node in up]
        confs = [conf for conf in confs if conf.voters]
        voters = [node for node in up if all(node.peer(group) in conf.voters for conf in confs)]
        free = [node for node in voters if all(write.group != group for _, _, write in node.installs)]
        agreed = bool(confs) and all(conf == confs[0] and not conf.outgoing for conf in confs)
        return agreed and len(voters) * 2 > len(confs[0].voters) and len(free) >= len(voters) - 1 > 0

    # -- the end ---------------------------------------------------------------------------------------------

    def _check_end(self) -> None:
        for group in GROUPS:
            leaders = [
                node.number for node in self.nodes.values() if node.engine.status(group).role == Role.LEADER
            ]
            if len(leaders) != 1:
                self.judge.fail(f"group {group}: leaders {leaders} at the end")
            status = self.nodes[leaders[0]].engine.status(group)
            members = {*status.conf.voters, *status.conf.learners}
            applied = {
                number: node.applied[group]
                for number, node in self.nodes.items()
                if node.peer(group) in members
            }
            if set(applied.values()) != {status.last}:
                self.judge.fail(f"group {group}: last index {status.last}, applied {applied}")
            self._check_logs(group)

    def _check_logs(self, group: int) -> None:
        """Check that two logs that agree at an index agree at all earlier ones."""
        # (index, term) -> entry, and the term of the previous entry
        seen: dict[tuple[int, int], tuple[int, bytes, int]] = {}
        for node in self.nodes.values():
            files = node.disk.written[group]
            before = files.start_term
            for index, (term, kind, body) in enumerate(files.entries, files.start + 1):
                found = seen.setdefault((index, term), (kind, body, before))
                if found != (kind, body, before):
                    self.judge.fail(f"group {group}: logs differ at index {index}, term {term}")
                before = term


def play(seed: int, world: type[World] = World) -> str:
    """Run one seed; return the violation, or "" if there is none."""
    try:
        world(seed).run()
    except Violation as error:
        return str(error)
    except Exception as error:  # report the seed of any error
        return f"{CRASHED}{type(error).__name__}: {error}"
    return ""
