"""The compiled engine. Times are ticks, indexes start at 1, a peer is `peer_id(node, incarnation)`."""

from typing import Self, final

__all__ = [
    "DESCRIPTOR_SIZE",
    "FRAME_SIZE_MAX",
    "FRAME_VERSION",
    "INTERFACE",
    "Conf",
    "FrameError",
    "Groups",
    "Point",
    "Quarantined",
    "RaftError",
    "Ready",
    "Refused",
    "Status",
    "UnknownGroup",
    "Write",
    "payloads_of",
]

DESCRIPTOR_SIZE: int  # bytes of a descriptor
FRAME_SIZE_MAX: int
FRAME_VERSION: int
INTERFACE: int  # changes with every change of this file; the caller knows one

# Node, frames for it, and (group, index, term) of each entry in them whose payload must travel with them.
_Batch = tuple[int, bytes, list[tuple[int, int, int]]]
# Term, kind (EntryKind), descriptor or changes.
_Entry = tuple[int, int, bytes]

class RaftError(Exception):
    """The base of this package's errors."""

class FrameError(RaftError):
    """A batch of frames was refused as a whole; the text names the first field that is wrong."""

class UnknownGroup(RaftError):
    """The group is not open on this node."""

class Quarantined(RaftError):
    """The group has panicked and does nothing more; the text names it and says where."""

class Refused(RaftError):
    """The group cannot do that now; the text says why."""

@final
class Conf:
    """A membership; `outgoing` and `next_learners` are those of a joint one. Lists are sorted when they come out."""

    def __new__(
        cls,
        voters: list[int] = ...,
        learners: list[int] = ...,
        outgoing: list[int] = ...,
        next_learners: list[int] = ...,
        auto_leave: bool = False,
    ) -> Self: ...
    @property
    def voters(self) -> list[int]: ...
    @property
    def learners(self) -> list[int]: ...
    @property
    def outgoing(self) -> list[int]: ...
    @property
    def next_learners(self) -> list[int]: ...
    @property
    def auto_leave(self) -> bool: ...
    def __eq__(self, other: object, /) -> bool: ...

@final
class Point:
    """A snapshot: the state of the application at `index`."""

    @property
    def index(self) -> int: ...
    @property
    def term(self) -> int: ...
    @property
    def conf(self) -> Conf: ...
    @property
    def descriptor(self) -> bytes: ...

@final
class Write:
    """What must become durable for one group.

    `entries` begin at `first` and replace everything from there on. `hard` is (term, vote, commit), None if it is
    unchanged. A `snapshot` replaces the log only when it is durable with all its data; until `installed` says so, a
    restart must find the log from before it.
    """

    @property
    def group(self) -> int: ...
    @property
    def hard(self) -> tuple[int, int, int] | None: ...
    @property
    def snapshot(self) -> Point | None: ...
    @property
    def first(self) -> int: ...
    @property
    def entries(self) -> list[_Entry]: ...

@final
class Ready:
    """What one turn found, for all groups. Order of effects: frames leave, writes become durable, `stored`."""

    @property
    def token(self) -> int:
        """The number for `stored`; 0 if nobody waits for the writes."""
    @property
    def must_sync(self) -> bool:
        """Whether the writes need a sync; without it they are commit indexes alone."""
    @property
    def frames(self) -> list[_Batch]: ...
    @property
    def writes(self) -> list[Write]: ...
    @property
    def committed(self) -> list[tuple[int, int, int, int, bytes]]:
        """Group, index, term, kind and body of each entry that is committed and durable here, in order."""
    @property
    def reads(self) -> list[tuple[int, int, int]]:
        """Group, number of `read_index`, and the index that must have been applied before the read."""
    @property
    def roles(self) -> list[tuple[int, int, int, int]]:
        """Group, term, role and leader (0: none), of groups where they changed."""
    @property
    def confs(self) -> list[tuple[int, int, Conf]]:
        """Group, index and membership from that index on."""
    @property
    def wanted(self) -> list[tuple[int, int]]:
        """Group and peer that needs a snapshot: `offer_snapshot` is the answer."""
    @property
    def snapshots(self) -> list[tuple[int, int, int]]:
        """Group, peer and index of each snapshot frame among `frames`: each needs a `report_snapshot` at its end."""

@final
class Status:
    """One group as it is now."""

    @property
    def name(self) -> str: ...
    @property
    def peer(self) -> int: ...
    @property
    def role(self) -> int: ...
    @property
    def leader(self) -> int: ...
    @property
    def term(self) -> int: ...
    @property
    def vote(self) -> int: ...
    @property
    def commit(self) -> int: ...
    @property
    def start(self) -> int: ...
    @property
    def last(self) -> int: ...
    @property
    def asleep(self) -> bool: ...
    @property
    def conf(self) -> Conf: ...
    @property
    def matched(self) -> list[tuple[int, int]]:
        """Peer and the last index that it is known to have; empty unless this node leads."""

@final
class Groups:
    """All groups of one node."""

    def __new__(
        cls,
        node: int,
        *,
        seed: int,
        boot: int,
        heartbeat_ticks: int = 5,
        election_ticks: int = 20,
        sleep_ticks: int = 10,
        stagger_ticks: int = 4,
        watch_ticks: int = 6000,
    ) -> Self:
        """Make the engine of `node`.

        `seed` is all its chance. `boot` differs at each start of the node (below 2**24): numbers of reads must never
        come again. A follower waits `election_ticks` to twice as many for its leader. Every `watch_ticks` the leader
        of a sleeping group says that it is there; a follower that misses that three times wakes.
        """

    def open(
        self,
        group: int,
        name: str,
        peer: int,
        conf: Conf,
        *,
        term: int = 0,
        vote: int = 0,
        commit: int = 0,
        start: int = 1,
        start_term: int = 1,
        entries: list[_Entry] = ...,
    ) -> None:
        """Open a group with what is durable of it.

        A new group has nothing but its `conf`, the same on all its peers. A peer that joins later opens with an empty
        `conf` and `start=0, start_term=0`, and gets a snapshot. `start` is the point of the last `compact` or
        snapshot, `entries` follow it. Committed entries after `start` come again.

        Raises:
            ValueError: what is given cannot be a group's; the text says what.
        """

    def close(self, group: int) -> None:
        """Close a group, quarantined or not."""

    def tick(self) -> None:
        """Let one tick pass for all groups that are awake."""

    def step(self, frames: bytes) -> list[tuple[int, int]]:
        """Take frames from other nodes; return group and sender of those whose group or peer is not here.

        Payloads of the entries in them (`payloads_of`) are checked and held before.

        Raises:
            FrameError: nothing of the batch was taken.
        """

    def propose(self, proposals: list[tuple[int, bytes]]) -> list[tuple[int, int] | None]:
        """Propose (group, descriptor); return index and term of each, None where this node does not lead."""

    def has_ready(self) -> bool:
        """Return whether `ready` may have something: without it, a turn has nothing to do for the engine."""

    def ready(self) -> Ready:
        """Return everything that the groups have ready."""

    def stored(self, token: int) -> list[_Batch]:
        """Report the writes of a turn durable, in the order of tokens; return the frames that waited for it."""

    def installed(self, group: int, index: int) -> list[_Batch]:
        """Report a snapshot durable with all its data, after `stored`; return the frames that waited for it."""

    def compact(self, group: int, index: int) -> tuple[int, int, Conf]:
        """Forget entries up to `index`, which are applied and durable elsewhere; return the new start for `open`."""

    def offer_snapshot(self, group: int, index: int, descriptor: bytes) -> None:
        """Offer the state at an applied `index` to peers whose entries are gone."""

    def report_snapshot(self, group: int, peer: int, done: bool) -> None:
        """Report that a snapshot reached a peer, or failed to: only then does the peer get more.

        A failure withdraws the offer, whose data may be gone: the group comes in `Ready.wanted` again.
        """

    def change(self, group: int, changes: list[tuple[int, int]]) -> tuple[int, int]:
        """Propose (Change, peer), up to four in one step, several by joint consensus; return index and term."""

    def transfer(self, group: int, peer: int) -> None:
        """Hand the lead over to another voter; until it is done or has failed, `propose` answers None."""

    def campaign(self, group: int) -> None:
        """Stand for election now."""

    def set_prompt(self, group: int, prompt: bool) -> None:
        """Decide when this node, where it leads, tells the others what is committed; after `open`: at once.

        Otherwise the next append tells them, or one within two ticks. That halves the messages of an entry, and
        followers apply it later.
        """

    def set_doubtful(self, group: int, doubtful: bool) -> None:
        """Say whether this peer may lack entries that it has answered for, after `open` and before `step`.

        It takes no part in elections then. The doubt ends when a read has been answered and what it needs is
        here, or when a majority of the voters is in doubt.
        """

    def set_floor(self, group: int, term: int, index: int) -> None:
        """Let a peer in doubt elect those whose last entry is this one or a later one.

        It is the newest one of all voters that are not in doubt, since one of them has each committed entry; or of
        all voters, if a majority is in doubt.
        """

    def forget_answers(self, group: int, peer: int) -> None:
        """Forget, where this node leads, what a peer has answered: it says that it is in doubt."""

    def read_index(self, group: int) -> int:
        """Ask for the index of a linearizable read; return the number under which it comes, or never comes."""

    def node_silent(self, node: int) -> None:
        """Report that a node does not answer: its groups elect, one candidate first, the others staggered.

        Raises:
            ValueError: 0 is no node.
        """

    def node_heard(self, node: int) -> None:
        """Report that a node answers again."""

    def quarantined(self) -> list[tuple[int, str]]:
        """Return each group that has panicked, and how."""

    def counts(self) -> tuple[int, int]:
        """Return how many groups are open, and how many of them are awake."""

    def status(self, group: int) -> Status:
        """Return one group as it is now."""

    def term_at(self, group: int, index: int) -> int | None:
        """Return the term of an index that the log has."""

    def entry(self, group: int, index: int) -> _Entry | None:
        """Return an entry of the log, committed or not."""

def payloads_of(frames: bytes, node: int = 0) -> list[tuple[int, int, int, bytes]]:
    """Return group, index, term and descriptor of each entry with a payload in a batch.

    Raises:
        FrameError: the batch is damaged, or a frame is not from a peer on `node` (0: any); a read request may be.
    """
