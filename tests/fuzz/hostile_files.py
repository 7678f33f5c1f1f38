"""Stored files with hostile numbers in their fields and matching checksums.

Written from docs/storage-format.md alone, so that it does not depend on the server's own reader and writer.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from random import Random
from typing import Any, TypeAlias

import msgpack
import orjson
import xxhash

Mutation: TypeAlias = Callable[[bytes, Random], bytes]

EDGES = [0, 1, 2, 7, 255, 65535, 65536, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 32, 1 << 40, 1 << 53]
EDGES += [1 << 62, (1 << 63) - 1, 1 << 63, (1 << 64) - 2, (1 << 64) - 1]
SEGMENT_HEADER = {"base_seq": (16, "Q"), "number": (32, "I"), "incarnation": (40, "Q"), "flags": (12, "I")}
RECORD = {"kind": (4, "B"), "flags": (5, "B"), "subject_len": (6, "H"), "seq": (8, "Q"), "ts": (16, "Q")}
RECORD |= {"header_len": (24, "I")}
HEADER_SIZE, RECORD_HEADER_SIZE, CHECKSUM_SIZE, CHECK_AT = 64, 32, 8, 28
MSG, FOOTER = 1, 4
FRAME = struct.Struct("<8sHBBBBHIIQ")  # the header of metadata
SIZES = {"B": 8, "H": 16, "I": 32, "Q": 64}
LIST_MARK = b"\xffLISTED\xfe"  # precedes each entry of a list of consumers
# changes in a consumer's log: how many numbers each has
CHANGES = {1: 4, 2: 2, 3: 2, 4: 2, 5: 2, 6: 1, 7: 2, 8: 1}


def number(chance: Random, was: int, bits: int) -> int:
    """Return a hostile number for a field of `bits` bits."""
    near = was + chance.choice([-2, -1, 1, 2, 100, 1_000_000, 3_000_000])
    return chance.choice([chance.choice(EDGES), near, chance.getrandbits(bits)]) & ((1 << bits) - 1)


def put(data: bytearray, at: int, form: str, chance: Random) -> None:
    """Write a hostile number into a field."""
    (was,) = struct.unpack_from(f"<{form}", data, at)
    struct.pack_into(f"<{form}", data, at, number(chance, was, SIZES[form]))


# -- segments and index files ----------------------------------------------------------------------------------


def places(segment: bytes) -> list[int]:
    """Return the offsets of the records of a plain segment."""
    found, at = [], HEADER_SIZE
    while at + RECORD_HEADER_SIZE < len(segment) and (length := struct.unpack_from("<I", segment, at)[0]):
        found.append(at)
        at += length
    return found


def sealed_segment(data: bytearray, records: list[int]) -> bytes:
    """Return a segment whose checksums match its bytes."""
    struct.pack_into("<Q", data, HEADER_SIZE - 8, xxhash.xxh64_intdigest(data[: HEADER_SIZE - 8]))
    for at in records:
        end = at + struct.unpack_from("<I", data, at)[0]
        head = xxhash.xxh64_intdigest(data[at : at + CHECK_AT])
        own = xxhash.xxh64_intdigest(data[at + RECORD_HEADER_SIZE : end - CHECKSUM_SIZE], head)
        struct.pack_into("<I", data, at + CHECK_AT, own & 0xFFFFFFFF or 1)
        before = struct.unpack_from("<Q", data, at - CHECKSUM_SIZE)[0]
        checksum = xxhash.xxh64_intdigest(struct.pack("<Q", own), before)
        struct.pack_into("<Q", data, end - CHECKSUM_SIZE, checksum)
    return bytes(data)


def hostile_segment(segment: bytes, chance: Random) -> bytes:
    """Write hostile numbers into the header of a segment, or into the header or fields of a record."""
    data, records = bytearray(segment), places(segment)
    for _ in range(chance.choice([1, 1, 2, 3])):
        if chance.random() < 0.2:
            at, form = SEGMENT_HEADER[chance.choice(sorted(SEGMENT_HEADER))]
            put(data, at, form, chance)
            continue
        at = chance.choice(records[:4] + records[-4:] + [chance.choice(records)])
        length, kind = struct.unpack_from("<IB", data, at)
        body = length - RECORD_HEADER_SIZE - CHECKSUM_SIZE
        if kind != MSG and body >= 8 and chance.random() < 0.6:
            put(data, at + RECORD_HEADER_SIZE + chance.randrange(body // 8) * 8, "Q", chance)
        else:
            offset, form = RECORD[chance.choice(sorted(RECORD))]
            put(data, at + offset, form, chance)
    return sealed_segment(data, records)


def hostile_index(index: bytes, chance: Random) -> bytes:
    """Write hostile numbers anywhere into an index file."""
    data = bytearray(index)
    for _ in range(chance.choice([1, 1, 1, 2, 4])):
        room = 128 if chance.random() < 0.4 else len(data) - CHECKSUM_SIZE
        put(data, chance.randrange(room // 8) * 8 + chance.choice([0, 4]), "I", chance)
    if chance.random() < 0.1:  # then no entry is a message
        for at in range(128 + 30, 128 + 40 * struct.unpack_from("<I", index, 92)[0], 40):
            data[at] &= ~1
    return bytes(data[:-8]) + struct.pack("<Q", xxhash.xxh64_intdigest(data[:-8]))


# -- metadata, states, windows ---------------------------------------------------------------------------------


def envelopes(data: bytes) -> list[tuple[tuple[Any, ...], bytes]]:
    """Return header and body of each envelope in a file, in order."""
    found, at = [], 0
    while data[at : at + 8] == b"PYJSMETA":
        frame = FRAME.unpack_from(data, at)
        found.append((frame, data[at + FRAME.size : at + FRAME.size + frame[7]]))
        at += FRAME.size + frame[7] + CHECKSUM_SIZE
    return found


def envelope(frame: tuple[Any, ...], body: bytes) -> bytes:
    """Return an envelope like `frame` around another body."""
    data = FRAME.pack(*frame[:7], len(body), *frame[8:]) + body
    return data + struct.pack("<Q", xxhash.xxh64_intdigest(data))


def hostile_value(chance: Random, was: object) -> object:
    """Return a value to write in place of `was`."""
    if isinstance(was, int) and not isinstance(was, bool) and chance.random() < 0.7:
        return number(chance, was, 64) - chance.choice([0, 0, 1 << 63])
    deep: object = 1
    for _ in range(chance.choice([3, 100, 500])):
        deep = [deep] if chance.random() < 0.5 else {"a": deep}
    texts: list[object] = [
        "",
        "\0",
        "x" * 300,
        "a..b",
        "../..",
        ">",
        "*.>",
        ".".join("a" * 150_000),
        "\ud800",
    ]
    others: list[object] = [None, True, 1.5, float("inf"), float("nan"), -1, b"", b"\xff" * 40, [], {}, deep]
    return chance.choice([*texts, *others, chance.choice(EDGES), [was], [was] * 50, {"a": was}])


def changed(values: Any, chance: Random) -> Any:
    """Return a copy of a map or list from a file, with one hostile value in it."""
    if isinstance(values, dict) and values:
        key = chance.choice(sorted(values, key=repr))
        inner = values[key]
        if isinstance(inner, dict | list) and inner and chance.random() < 0.7:
            return {**values, key: changed(inner, chance)}
        if chance.random() < 0.1:
            return {name: value for name, value in values.items() if name != key}
        return {**values, key: hostile_value(chance, inner)}
    if isinstance(values, list) and values:
        at = chance.randrange(len(values))
        inner = values[at]
        nested = isinstance(inner, dict | list) and inner and chance.random() < 0.7
        new = changed(inner, chance) if nested else hostile_value(chance, inner)
        return [*values[:at], new, *values[at + 1 :]]
    return hostile_value(chance, values)


def hostile_meta(data: bytes, chance: Random) -> bytes:
    """Change a value in the metadata or in the duplicate window, or the numbers of the window's ids."""
    parts = envelopes(data)
    at = chance.randrange(len(parts))
    frame, body = parts[at]
    values = msgpack.unpackb(body, strict_map_key=False)
    if "ids" in values and chance.random() < 0.5:
        ids = bytearray(values["ids"])
        entry = chance.randrange(max(values["count"], 1)) * 24
        put(ids, entry + chance.choice([0, 4, 8, 12, 16, 20]), "I", chance)
        values["ids"] = bytes(ids)
    else:
        values = changed(values, chance)
    new = msgpack.packb(values, unicode_errors="surrogatepass")
    return b"".join(envelope(*part) for part in [*parts[:at], (frame, new), *parts[at + 1 :]])


def leb128(value: int) -> bytes:
    """Encode a number as the log of a consumer does."""
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def delta(chance: Random) -> bytes:
    """Return the changes of one turn, some of which the server never writes."""
    out = bytearray()
    for _ in range(chance.choice([1, 2, 5, 40])):
        kind = chance.choice(sorted(CHANGES))
        numbers = [chance.choice([chance.randrange(60), number(chance, 9, 64)]) for _ in range(CHANGES[kind])]
        out += bytes([kind]) + b"".join(map(leb128, numbers))
    if chance.random() < 0.1:
        out += bytes([chance.randrange(256)]) + b"\xff" * chance.choice([3, 12, 5000])
    return bytes(out)


def hostile_log(data: bytes, chance: Random) -> bytes:
    """Change the snapshot in a consumer's log, or append changes to it."""
    frame, body = envelopes(data)[0]
    if chance.random() < 0.4:
        state = orjson.loads(msgpack.unpackb(body)["state"])
        try:
            body = msgpack.packb({"state": orjson.dumps(changed(state, chance))})
        except TypeError:  # not JSON
            body = msgpack.packb({"state": b"[" * chance.choice([1, 100_000])})
    out = envelope(frame, body)
    chain = struct.unpack_from("<Q", out, len(out) - CHECKSUM_SIZE)[0]
    for _ in range(chance.choice([0, 1, 3, 20])):
        entry = delta(chance)
        size = struct.pack("<I", len(entry))
        chain = xxhash.xxh64_intdigest(size + entry, chain)
        out += struct.pack("<IIQ", len(entry), 0, chain) + entry
    return out


# -- the list of consumers, purges -----------------------------------------------------------------------------


def hostile_list(data: bytes, chance: Random) -> bytes:
    """Change entries of a list of consumers, their numbers and their order, or add invalid entries."""
    entries = [envelopes(piece)[0] for piece in data.split(LIST_MARK)[1:]]
    for _ in range(chance.choice([1, 1, 2, 4])):
        at = chance.randrange(len(entries))
        frame, body = entries[at]
        drawn = chance.random()
        if drawn < 0.6:
            values = msgpack.unpackb(body, strict_map_key=False, unicode_errors="surrogatepass")
            if isinstance(values, dict) and "state" in values and chance.random() < 0.4:
                values["state"] = _hostile_state(values["state"], chance)
            else:
                values = changed(values, chance)
            entries[at] = (frame, msgpack.packb(values, unicode_errors="surrogatepass"))
        elif drawn < 0.8:
            generation = number(chance, frame[9], 64)
            entries[at] = ((*frame[:9], generation), body)
        elif drawn < 0.9:
            entries.insert(chance.randrange(len(entries) + 1), entries[at])
        else:
            ident = number(chance, 2, 64)
            drop = {
                "op": chance.choice(["drop", "put", "head"]),
                "name": chance.choice(["c", "", "../x"]),
                "id": ident,
            }
            entries.append(((*frame[:9], entries[-1][0][9] + 1), msgpack.packb(drop)))
    return b"".join(LIST_MARK + envelope(*entry) for entry in entries)


def _hostile_state(state: bytes, chance: Random) -> bytes:
    try:
        return orjson.dumps(changed(orjson.loads(state), chance))
    except (TypeError, ValueError):  # not JSON, or it was not JSON before
        return b"[" * chance.choice([1, 100_000])


def hostile_purge(subject: str, chance: Random) -> bytes:
    """Return the file of a purge that no server has begun."""
    values: Any = {
        "subject": chance.choice([subject, "", f"{subject}.1"]),
        "before_seq": number(chance, 20, 64),
    }
    if chance.random() < 0.6:
        values = changed(values, chance)
    frame = (b"PYJSMETA", 1, 5, 0, 0, 1, 0, 0, 0, 1)
    return envelope(frame, msgpack.packb(values, unicode_errors="surrogatepass"))


def mutation_of(name: str) -> Mutation | None:
    """Return the function that makes a file of that name hostile, or None if there is none."""
    stem, _, suffix = name.partition(".")
    if suffix in ("seg", "idx"):
        return hostile_segment if suffix == "seg" else hostile_index
    if stem in ("log", "snap"):
        return hostile_log
    if stem == "consumers" and suffix in ("a", "b"):
        return hostile_list
    return hostile_meta if stem in ("meta", "window") else None
