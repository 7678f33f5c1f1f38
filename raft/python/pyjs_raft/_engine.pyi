"""The compiled engine. Times are in ticks, indexes start at 1, and a peer is `peer_id(node, incarnation)`."""

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
INTERFACE: int  # changes when the interface in this file changes; the caller accepts only one number

# Node, frames for it, and (group, index, term) of each entry in them whose payload must travel with them.
_Batch = tuple[int, bytes, list[tuple[int, int, int]]]
# Term, kind (EntryKind), descriptor or changes.
_Entry = tuple[int, int, bytes]

class RaftError(Exception):
    """The base of this package's errors."""

class FrameError(RaftError):
    """A batch of frames was refused as a whole; the text names the first invalid field."""

class UnknownGroup(RaftError):
    """The group is not open on this node."""

class Quarantined(RaftError):
    """A panic has closed the group; the text has its name and the place of the panic."""

class Refused(RaftError):
    """The group cannot execute the call now; the text has the reason."""

@final
class Conf:
    """A membership; `outgoing` and `next_learners` belong to joint consensus.

    The lists that it returns are sorted.
    """

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
    """The state of one group that the caller must make durable.

    `entries` begin at `first` and replace all earlier entries from that index on. `hard` is (term, vote, commit), or
    None if none of the three has changed. A `snapshot` replaces the log only after all data of the snapshot is
    durable and the caller has called `installed`; after a restart before that, the caller must open the group with
    the old log.
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
    """The results of one turn, for all groups. Send `frames`, make `writes` durable, then call `stored`."""

    @property
    def token(self) -> int:
        """The number to pass to `stored`; 0 if the writes need not be reported."""
    @property
    def must_sync(self) -> bool:
        """Whether the writes need a sync; if not, they contain only commit indexes."""
    @property
    def frames(self) -> list[_Batch]: ...
    @property
    def writes(self) -> list[Write]: ...
    @property
    def committed(self) -> list[tuple[int, int, int, int, bytes]]:
        """Group, index, term, kind and body of each entry that is committed, and durable on this node; in order."""
    @property
    def reads(self) -> list[tuple[int, int, int]]:
        """Group, number from `read_index`, and the index that must be applied before the read is answered."""
    @property
    def roles(self) -> list[tuple[int, int, int, int]]:
        """Group, term, role and leader (0: none) of each group whose role or leader has changed."""
    @property
    def confs(self) -> list[tuple[int, int, Conf]]:
        """Group, index, and the membership that applies from this index on."""
    @property
    def wanted(self) -> list[tuple[int, int]]:
        """Group, and the peer that needs a snapshot; call `offer_snapshot` for the group."""
    @property
    def snapshots(self) -> list[tuple[int, int, int]]:
        """Group, peer and index of each snapshot in `frames`.

        Call `report_snapshot` for each when its transfer ends.
        """

@final
class Status:
    """The current state of one group."""

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
        """Each peer with the last index that it is known to have; empty unless this node is the leader."""

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
        """Create the engine of `node`.

        `seed` is the only source of randomness. `boot` (below 2**24) must be different at each start of the node, so
        that the number of a read is never used twice. A follower waits between one and two times `election_ticks` for
        its leader. After a node is reported as silent, the candidates of a group start `stagger_ticks` apart. A group
        that is idle for `sleep_ticks` goes to sleep. The leader of a sleeping group sends a heartbeat every
        `watch_ticks`, in the same tick as a twelfth of all groups; a follower that misses three in succession wakes.
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
        """Open a group with its durable state.

        A new group has only a `conf`, which must be the same on all its peers. A peer that joins later is opened with
        an empty `conf` and `start=0, start_term=0`, and receives a snapshot. Otherwise, `start` is the index of the
        last `compact` or snapshot, and `entries` follow that index. `Ready.committed` returns committed entries after
        `start` again.

        Raises:
            ValueError: the arguments cannot be the state of a group; the text has the reason.
        """

    def close(self, group: int) -> None:
        """Close a group, even a quarantined one."""

    def tick(self) -> None:
        """Advance the time of all awake groups by one tick."""

    def step(self, frames: bytes) -> list[tuple[int, int]]:
        """Handle frames from other nodes; return group and sender of each frame for an unknown group or peer.

        Before this call, the caller must have checked and stored the payloads of the entries (`payloads_of`).

        Raises:
            FrameError: the batch is invalid, and no frame was handled.
        """

    def propose(self, proposals: list[tuple[int, bytes]]) -> list[tuple[int, int] | None]:
        """Propose pairs of group and descriptor.

        Return index and term of each, or None if this node does not lead the group.
        """

    def has_ready(self) -> bool:
        """Return whether `ready` may return anything; if not, the caller need not call it."""

    def ready(self) -> Ready:
        """Return the results that all groups have ready."""

    def stored(self, token: int) -> list[_Batch]:
        """Report that the writes of a turn are durable, in the order of tokens.

        Return the frames that waited for them.
        """

    def installed(self, group: int, index: int) -> list[_Batch]:
        """Report, after `stored`, that all data of a snapshot is durable.

        Return the frames that waited for the snapshot.
        """

    def compact(self, group: int, index: int) -> tuple[int, int, Conf]:
        """Remove the entries up to `index`, which must be applied and durable elsewhere.

        Return the start for `open`.
        """

    def offer_snapshot(self, group: int, index: int, descriptor: bytes) -> None:
        """Offer a snapshot of the state at an applied `index` to peers that need removed entries."""

    def report_snapshot(self, group: int, peer: int, done: bool) -> None:
        """Report whether a snapshot has reached a peer; until then, the peer gets no further entries.

        A failure withdraws the offer, since its data may no longer exist. `Ready.wanted` then has the group again.
        """

    def change(self, group: int, changes: list[tuple[int, int]]) -> tuple[int, int]:
        """Propose up to four pairs (Change, peer) as one entry; several need joint consensus.

        Return index and term.
        """

    def transfer(self, group: int, peer: int) -> None:
        """Start the transfer of leadership to another voter; until it succeeds or fails, `propose` returns None."""

    def campaign(self, group: int) -> None:
        """Start an election now, with this node as the candidate."""

    def set_prompt(self, group: int, prompt: bool) -> None:
        """Set whether this node, as the leader, sends new commit indexes to followers at once (default: it does).

        If not, the next append contains the commit index, or a message within two ticks. That halves the number of
        messages for an entry, but followers apply the entry later.
        """

    def set_doubtful(self, group: int, doubtful: bool) -> None:
        """Set whether this peer may lack entries that it has acknowledged; call it after `open` and before `step`.

        A peer in doubt takes part in no election. The caller ends the doubt when a read has been answered and the
        entries that it needs are here, or when a majority of the voters is in doubt.
        """

    def set_floor(self, group: int, term: int, index: int) -> None:
        """Let a peer in doubt vote for candidates whose last entry is the given one or a later one.

        The given entry must be the newest last entry of all voters that are not in doubt, since one of these has each
        committed entry. If a majority of the voters is in doubt, it must be the newest last entry of all voters.
        """

    def forget_answers(self, group: int, peer: int) -> None:
        """As the leader, forget which entries a peer has acknowledged.

        Called when the peer reports that it is in doubt.
        """

    def read_index(self, group: int) -> int:
        """Request the index for a linearizable read; return its number in `Ready.reads`.

        The read may never appear there.
        """

    def node_silent(self, node: int) -> None:
        """Report that a node does not answer. Groups that it led elect a new leader; candidates start one by one.

        Raises:
            ValueError: the number of the node is 0.
        """

    def node_heard(self, node: int) -> None:
        """Report that a silent node answers again."""

    def quarantined(self) -> list[tuple[int, str]]:
        """Return each group that has panicked, with the text of the panic."""

    def counts(self) -> tuple[int, int]:
        """Return the number of open groups, and the number of those that are awake."""

    def status(self, group: int) -> Status:
        """Return the current state of one group."""

    def term_at(self, group: int, index: int) -> int | None:
        """Return the term of the entry at `index`, or None if the log does not have it."""

    def entry(self, group: int, index: int) -> _Entry | None:
        """Return the entry at `index`, committed or not; None if the log does not have it."""

def payloads_of(frames: bytes, node: int = 0) -> list[tuple[int, int, int, bytes]]:
    """Return group, index, term and descriptor of each entry with a payload in a batch of frames.

    Raises:
        FrameError: the batch is damaged, or a frame (other than a read request) is not from `node` (0: any).
    """
