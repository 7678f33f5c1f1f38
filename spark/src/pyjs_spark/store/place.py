"""The location of a store directory: plain values, so that Spark can send them to its workers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StoreDirectory:
    """The location of one account's streams in a store directory."""

    path: str
    account: str = "$G"
    # file with the key of the server's configuration, on each machine that reads the store
    key_file: str = ""
