"""A store directory: where the streams of an account are, and what their metadata say.

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
from pyjs_spark.store.image import HEADER_SIZE, Unusable, header_in, open_image
from pyjs_spark.store.place import StoreDirectory
from pyjs_spark.store.scan import last_metadata

SAFE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-$=+,@")
NAME_SIZE_MAX = 180
RECORD_HEAD_SIZE = 32
CHECKSUM_SIZE = 8


@dataclass(frozen=True, slots=True)
class StreamPlace:
    """One stream of a store."""

    name: str
    messages: str  # directory of its segments
    metadata: Metadata


def streams(place: StoreDirectory) -> Iterator[StreamPlace]:
    """Yield the streams of the account, in the order of their directories. Raises BadStore, StoreKeyNeeded."""
    directory, key = _account_directory(place), _key_in(place)
    for name in sorted(os.listdir(directory)):
        found = None if name.startswith(".") else _stream(f"{directory}/{name}", key)
        if found is not None and file_name(found.name) == name:
            yield found


def stream(place: StoreDirectory, name: str) -> StreamPlace | None:
    """Return one stream, None if it is not there. Raises BadStore, StoreKeyNeeded."""
    directory = f"{_account_directory(place)}/{file_name(name)}"
    found = _stream(directory, _key_in(place)) if os.path.isdir(directory) else None
    return found if found is not None and found.name == name else None


def file_name(name: str) -> str:
    """Return the name of an account or stream as that of its directory."""
    escaped = "".join(
        char if char in SAFE else "".join(f"%{byte:02X}" for byte in char.encode()) for char in name
    )
    if len(escaped) <= NAME_SIZE_MAX:
        return escaped
    return f"{escaped[: NAME_SIZE_MAX - 20]}%-{xxh64(name.encode(), 0):016x}"


def segment_numbers(names: Iterable[str], suffix: str) -> list[int]:
    """Return the numbers of segments (.seg) or index files (.idx) among the names of a directory, ascending."""
    stems = (name.removesuffix(suffix) for name in names if name.endswith(suffix))
    return sorted(
        int(stem) for stem in stems if stem.isascii() and stem.isdigit() and f"{int(stem):08d}" == stem
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
    """Return the stream of a directory; None: none was ever confirmed there."""
    found: list[Metadata] = []
    for copy in ("a", "b"):
        path = f"{directory}/meta.{copy}"
        said = metadata_in(_bytes_of(path), path, key)
        found += [said] if said is not None else []
    messages = f"{directory}/msgs"
    numbers = segment_numbers(os.listdir(messages), ".seg") if os.path.isdir(messages) else []
    if not found and numbers:
        found = list(_from_segments(messages, numbers, key))
        if not found:
            raise BadStore(
                f"{directory}: no copy of the stream's metadata is whole; restore the directory from a backup"
            )
    if not found:
        return None
    newest = max(found, key=lambda each: each.generation)
    return StreamPlace(str(newest.config["name"]), messages, newest)


def _bytes_of(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except FileNotFoundError:
        return b""


def _from_segments(directory: str, numbers: list[int], key: str) -> Iterator[Metadata]:
    """Yield the newest metadata that stand in segments."""
    for number in reversed(numbers):
        path = f"{directory}/{number:08d}.seg"
        with open(path, "rb") as file:
            header = header_in(file.read(HEADER_SIZE))
            clear = file.read(header.body_at - HEADER_SIZE) if header is not None and header.cipher else b""
        body = clear[RECORD_HEAD_SIZE:-CHECKSUM_SIZE] if clear else _last_in(path)
        said = metadata_in(body, path, key)
        if said is not None:
            yield said
            return


def _last_in(path: str) -> bytes:
    try:
        image = open_image(path, None)
    except Unusable:
        return b""
    try:
        return last_metadata(image)
    finally:
        image.close()
