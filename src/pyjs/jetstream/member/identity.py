"""The identity of a store in a cluster: its number, and the first members that the store has adopted.

    <store>/.cluster.{a,b}      metadata file of kind 7, with the map
    store       u64, random, drawn when the file is created; if the number changes, the server has lost its files
    members     list of (node, store), the membership of jetstream/cluster/bootstrap; empty if none was adopted
    founded     whether the group of the members had a leader; if so, this store must have the log of the group

Each change is durable before this server sends it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyjs.base.errors import CorruptRecord
from pyjs.jetstream.cluster.bootstrap import Member, Membership
from pyjs.store.format.meta import KIND_CLUSTER, encode, load_meta, save_meta

if TYPE_CHECKING:
    from pyjs.base.disk import Disk
    from pyjs.base.log import Log
    from pyjs.base.rng import Rng

NAME = ".cluster"


class StoreIdentity:
    """The identity of one store, whose directory must exist."""

    def __init__(self, disk: Disk, root: str, log: Log, rng: Rng) -> None:
        """Read the identity from its file, or write a file with a new number if there is none.

        Raises:
            CorruptRecord: both copies are damaged, or a value is missing or invalid.
            UnknownFormat: a newer server wrote the file.
            OSError: the file cannot be read or written.
        """
        self._disk = disk
        self._root = root
        self._generation = 0
        self.adopted: Membership | None = None
        self.founded = False
        try:
            self._generation, values, problems = load_meta(disk, root, NAME, KIND_CLUSTER)
        except FileNotFoundError:
            self.renew(rng)
            return
        for problem in problems:
            log.warn(f"  {problem}; the other copy is used")
        try:
            self.store = int(values["store"])
            self.founded = bool(values["founded"])
            members = tuple(Member(int(node), int(store)) for node, store in values["members"])
        except (KeyError, TypeError, ValueError) as error:
            raise CorruptRecord(
                f"{root}/{NAME}.a", 0, f"it has no store, members and founded: {error}"
            ) from None
        self.adopted = Membership(members) if members else None

    def adopt(self, membership: Membership) -> None:
        """Store the first members durably. The store must not have adopted any yet. Raises OSError."""
        assert self.adopted is None
        self.adopted = membership
        self._save()

    def found(self) -> None:
        """Record in the file that the metadata group has had a leader. Raises OSError."""
        if not self.founded:
            self.founded = True
            self._save()

    def renew(self, rng: Rng) -> None:
        """Replace the number of the store with a new random number, and write the file. Raises OSError."""
        self.store = int.from_bytes(rng.randbytes(8), "little")
        self._save()

    def _save(self) -> None:
        self._generation += 1
        members = self.adopted.to_row() if self.adopted is not None else []
        values = {"store": self.store, "members": members, "founded": self.founded}
        save_meta(self._disk, self._root, NAME, encode(KIND_CLUSTER, self._generation, values))
