"""A store directory: the directories of an account's streams, and their metadata.

    <path>/jetstream/<account>/streams/<stream>/meta.a meta.b msgs/NNNNNNNN.seg msgs/NNNNNNNN.idx

Source: docs/storage-format.md, "Directories" and "Metadata".
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from pyjs_spark.decode.hashing import xxh64
from pyjs_spark.errors import BadStore
from pyjs_spark.store.envelope import Metadata, metadata_in
from pyjs_spark.store.place import StoreDirectory

SAFE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-$=+,@")
NAME_SIZE_MAX = 180


@dataclass(frozen=True, slots=True)
class StreamPlace:
    """One stream of a store: its directory and metadata."""

    name: str
    messages: str  # directory of its segments
    metadata: Metadata


def streams(place: StoreDirectory) -> Iterator[StreamPlace]:
    """Yield the streams of the account, in the order of their directories.

    Raises:
        BadStore: the store is missing or damaged, or cannot be read by this version.
        StoreKeyNeeded: a stream is encrypted with another key.
    """
    directory, key = _account_directory(place), _key_in(place)
    for name in sorted(os.listdir(directory)):
        found = None if name.startswith(".") else _stream(f"{directory}/{name}", key)
        if found is not None and file_name(found.name) == name:
            yield found


def stream(place: StoreDirectory, name: str) -> StreamPlace | None:
    """Return one stream of the account, or None if it does not exist.

    Raises:
        BadStore: the store is missing or damaged, or cannot be read by this version.
        StoreKeyNeeded: the stream is encrypted with another key.
    """
    directory = f"{_account_directory(place)}/{file_name(name)}"
    found = _stream(directory, _key_in(place)) if os.path.isdir(directory) else None
    return found if found is not None and found.name == name else None


def file_name(name: str) -> str:
    """Return the name of the directory of an account or stream."""
    escaped = "".join(
        char if char in SAFE else "".join(f"%{byte:02X}" for byte in char.encode()) for char in name
    )
    if len(escaped) <= NAME_SIZE_MAX:
        return escaped
    return f"{escaped[: NAME_SIZE_MAX - 20]}%-{xxh64(name.encode(), 0):016x}"


def segment_numbers(names: Iterable[str], suffix: str) -> list[int]:
    """Return the numbers in the names of segments (.seg) or of index files (.idx) in a directory, ascending."""
    stems = (name.removesuffix(suffix) for name in names if name.endswith(suffix))
    return sorted(
        int(stem) for stem in stems if stem.isascii() and stem.isdigit() and f"{int(stem):08d}" == stem
    )


def damaged_store(messages: str, what: str) -> BadStore:
    """Return the error for a damaged stream, whose segments are in the directory `messages`."""
    root = messages.removesuffix("/").rsplit("/", 4)[0]
    return BadStore(
        f"{what}; a damaged stream is not read: see what pyjs-server fsck {root} says, mend it with fsck --repair "
        "while no server uses it, or read the stream from a server"
    )


def _account_directory(place: StoreDirectory) -> str:
    root = place.path.removeprefix("file://").rstrip("/") or "/"
    if not os.path.isdir(root):
        raise BadStore(
            f"option path={place.path}: there is no such directory here; every worker must see it too"
        )
    for base in (f"{root}/jetstream", root):
        directory = f"{base}/{file_name(place.account)}/streams"
        if os.path.isdir(directory):
            return directory
    accounts = [name for base in (f"{root}/jetstream", root) for name in _accounts_in(base)]
    if accounts:
        raise BadStore(
            f"option account={place.account}: {place.path} has no such account; there are {', '.join(accounts)}"
        )
    raise BadStore(
        f"option path={place.path}: this is no store directory, which has jetstream/<account>/streams in it; give "
        "the store_dir of the server, or a copy of it"
    )


def _accounts_in(base: str) -> list[str]:
    names = sorted(os.listdir(base)) if os.path.isdir(base) else []
    return [name for name in names if os.path.isdir(f"{base}/{name}/streams")]


def _key_in(place: StoreDirectory) -> str:
    if not place.key_file:
        return ""
    try:
        key = Path(place.key_file).read_text("utf-8").rstrip("\r\n")
    except OSError as error:
        raise BadStore(f"option keyFile={place.key_file}: it cannot be read: {error.strerror}") from None
    if not key:
        raise BadStore(
            f"option keyFile={place.key_file}: it is empty; write the key of the server's configuration"
        )
    return key


def _stream(directory: str, key: str) -> StreamPlace | None:
    """Return the stream in a directory, or None if the server never acknowledged its creation.

    Raises:
        BadStore: the metadata is damaged or missing, or another version wrote it.
        StoreKeyNeeded: the stream is encrypted with another key.
    """
    found: list[Metadata] = []
    for copy in ("a", "b"):
        path = f"{directory}/meta.{copy}"
        said = metadata_in(_bytes_of(path), path, key)
        found += [said] if said is not None else []
    messages = f"{directory}/msgs"
    numbers = segment_numbers(os.listdir(messages), ".seg") if os.path.isdir(messages) else []
    if not found and numbers:
        raise damaged_store(messages, f"{directory}/meta.a and meta.b are damaged or missing")
    if not found:
        return None
    newest = max(found, key=lambda each: each.generation)
    return StreamPlace(str(newest.config["name"]), messages, newest)


def _bytes_of(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except FileNotFoundError:
        return b""
