"""Requests drawn from the tables of all requests: valid ones, but with a few values at the limits of their ranges.

Cases are reproducible: each is (seed, number). Values are written as JSON text, since no library writes numbers of
5,000 digits.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from tests.support.border import ACKS, BODIES, HEADERS

from pyjs.base.bounds import JSON_DEPTH_MAX, NUMBERS, TAKEN
from pyjs.core.auth.handshake import CONNECT_FIELDS
from pyjs.jetstream.config.json_strict import Kind, Struct

STREAMS, CONSUMERS, SUBJECTS = ("A", "B", "C"), ("c", "d", "e"), ("s.a", "s.b", "s.a.b", "t", "u.1")
EDGES = sorted({0, 1, -1, 2, 10, 10**9, 10**18, 2**53, 2**62, 2**64, 10**30})
EDGES += [
    edge + step
    for low, high in (*NUMBERS.values(), *TAKEN.values())
    for edge in (low, high)
    for step in (-1, 0, 1)
]
ODD_NUMBERS = (
    "-0",
    "1.5",
    "1e3",
    "1e400",
    "1e-400",
    "9" * 5_000,
    "-" + "9" * 5_000,
    "0." + "1" * 5_000,
    "01",
    "+1",
)
TIMES = (
    "0000-01-01T00:00:00Z 0001-01-01T00:00:00Z 0001-01-01T00:00:00+23:59 1677-09-21T00:12:43Z 1969-12-31T23:59:59.9Z "
    "1970-01-01T00:00:00Z 2023-11-14T22:13:20Z 2100-01-01T00:00:00Z 2262-04-11T23:47:17Z 2300-01-01T00:00:00Z "
    "9999-12-31T23:59:59.999999999Z 9999-12-31T23:59:59-23:59 2024-02-30T00:00:00Z 10000-01-01T00:00:00Z x"
).split()
DURATIONS = (
    "1s 1 5 0 -1 never 1.5s 500ms 9000000000 9223372036854775808 18446744073709551616 2562047h 1h1h x".split()
)
DURATIONS += ["1ns", "9" * 5_000, "1ns" * 2_000, "0." + "0" * 5_000 + "1s", "\u0665", ""]
TEXTS = (
    "",
    "x",
    "A",
    "s.a",
    ">",
    "*",
    "s.>",
    "s.*",
    "a..b",
    ".",
    "\u00e9",
    "a b",
    "x" * 300,
    "x" * 5_000,
    "never",
    "sub",
    "all",
)
RAW_STRINGS = (r"\ud800", r"\u0000", "\x7f", r"\u00e9" * 100, r"\n")
DEEP = (10, 900, 1_100, JSON_DEPTH_MAX - 1, JSON_DEPTH_MAX, JSON_DEPTH_MAX + 1)
GARBAGE = (
    b"",
    b" ",
    b"null",
    b"[]",
    b"{",
    b"x",
    b"{}{}",
    b"\xff",
    b'{"a":\xff}',
    b"[" * 20_000,
    b"1",
    b'{"a":1}x',
    b"-1",
)
OFTEN = """STREAM.CREATE STREAM.CREATE STREAM.UPDATE STREAM.INFO STREAM.PURGE STREAM.MSG.GET STREAM.MSG.DELETE
STREAM.DELETE CONSUMER.CREATE CONSUMER.CREATE CONSUMER.PAUSE CONSUMER.INFO CONSUMER.DELETE
CONSUMER.MSG.NEXT CONSUMER.MSG.NEXT DIRECT.GET PYJS.BULK.READ""".split()
MESSAGES: tuple[dict[str, str], ...] = (
    {"seq": "1"},
    {"last_by_subj": '"s.a"'},
    {"multi_last": '["s.>"]'},
    {"seq": "1", "batch": "3"},
    {},
)
PAYLOAD_MAX = 1_000_000
VERBS = ("word", "text", "name", "subject", "number", "duration")


@dataclass(frozen=True)
class Case:
    """One request, and the number of answers that it may have."""

    subject: bytes
    headers: bytes
    payload: bytes
    answers: tuple[int, int | None]


def number(rng: random.Random) -> str:
    """Return a random number, often one at a limit."""
    if rng.random() < 0.1:
        return rng.choice(ODD_NUMBERS)
    return str(rng.choice(EDGES))


def subject(rng: random.Random) -> str:
    """Return a subject; a few of them have many tokens."""
    if rng.random() < 0.005:
        return ".".join([rng.choice(("t", "*"))] * rng.choice((100, 5_000, 60_000))).replace("*", "t", 1)
    return rng.choice((*SUBJECTS, *SUBJECTS, *TEXTS))


def quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def value(rng: random.Random, kind: Kind) -> str:
    """Return a value of a field as JSON; a few are of another kind."""
    if rng.random() < 0.02:
        return wrong(rng)
    if kind.name in NUMBERS:
        return number(rng) if rng.random() < 0.7 else str(rng.choice((0, 1, 5, 10**9, 10**10)))
    if kind.name == "bool":
        return rng.choice(("true", "false"))
    if kind.name == "time.Time":
        return quoted(rng.choice(TIMES))
    if kind.name == "enum":
        return quoted(rng.choice(kind.words))
    if kind.name == "struct":
        assert kind.struct is not None
        return body(rng, kind.struct, {}, rng.randint(0, 3))
    if kind.name == "list":
        assert kind.item is not None
        items = [value(rng, kind.item) for _ in range(rng.choice((0, 1, 1, 2, 3)))]
        return f"[{','.join(items * (500 if rng.random() < 0.005 else 1))}]"
    if kind.name == "map":
        return f'{{"k":{quoted(subject(rng))},"_nats.x":"1"}}'
    return f'"{rng.choice(RAW_STRINGS)}"' if rng.random() < 0.05 else quoted(subject(rng))


def wrong(rng: random.Random) -> str:
    """Return a value that is valid for almost no field."""
    depth = rng.choice(DEEP)
    choices: tuple[Callable[[], str], ...] = (
        lambda: "null",
        lambda: "[]",
        lambda: "{}",
        lambda: "true",
        lambda: '"x"',
        lambda: number(rng),
        lambda: "[" * depth + "]" * depth,
        lambda: '{"a":' * depth + "1" + "}" * depth,
    )
    return rng.choice(choices)()


def body(rng: random.Random, struct: Struct, base: dict[str, str], edges: int) -> str:
    """Return an object of `base`, fields as JSON, with `edges` fields changed or added."""
    fields = dict(base)
    for _ in range(edges):
        name = rng.choice(sorted(struct.fields))
        if name not in ("name", "stream_name", "durable_name") or rng.random() < 0.05:
            fields[name] = value(rng, struct.fields[name])
    return "{" + ",".join(f'"{name}":{text}' for name, text in fields.items()) + "}"


def stream_base(rng: random.Random, name: str) -> dict[str, str]:
    subjects = {"A": '["s.>"]', "B": '["t"]', "C": '["u.*"]'}[name]
    storage = "file" if rng.random() < 0.3 else "memory"
    base = {"name": quoted(name), "subjects": subjects, "storage": quoted(storage), "allow_direct": "true"}
    return base | {
        "allow_msg_ttl": rng.choice(("true", "false")),
        "allow_rollup_hdrs": rng.choice(("true", "false")),
    }


def consumer_base(rng: random.Random, name: str) -> str:
    struct = BODIES["CONSUMER.CREATE"].struct
    assert struct is not None
    config = struct.fields["config"].struct
    assert config is not None
    base = {"name": quoted(name), "ack_policy": '"explicit"'}
    if rng.random() < 0.5:
        base["durable_name"] = quoted(name)
    if rng.random() < 0.2:
        base["deliver_subject"] = '"_INBOX.push"'
    return body(rng, config, base, rng.choice((0, 1, 1, 2, 3)))


def api(rng: random.Random) -> Case:
    """Return a request to the API."""
    words = rng.choice(sorted(BODIES) if rng.random() < 0.3 else OFTEN)
    if words in ("STREAM.DELETE", "CONSUMER.DELETE") and rng.random() < 0.5:
        words = words.replace("DELETE", "CREATE")
    stream, consumer = rng.choice(STREAMS), rng.choice(CONSUMERS)
    struct, answers = BODIES[words]
    names = {"INFO": [], "STREAM.NAMES": [], "STREAM.LIST": []}.get(words, [stream])
    if words.startswith("CONSUMER.") and words not in ("CONSUMER.NAMES", "CONSUMER.LIST"):
        names = [stream, consumer]
    if words.startswith("STREAM.MSG.DELETE") or words in ("STREAM.MSG.GET", "DIRECT.GET") or struct is None:
        edges = rng.choice((1, 1, 2))
    else:
        edges = rng.choice((0, 1, 1, 2, 3))
    if rng.random() < 0.03:
        payload = rng.choice(GARBAGE)
    elif words in ("STREAM.CREATE", "STREAM.UPDATE"):
        assert struct is not None
        payload = body(rng, struct, stream_base(rng, stream), edges).encode("utf-8", "surrogatepass")
    elif words in ("CONSUMER.CREATE", "CONSUMER.DURABLE.CREATE"):
        payload = f'{{"stream_name":{quoted(stream)},"config":{consumer_base(rng, consumer)}}}'.encode()
    elif words == "STREAM.RESTORE":
        assert struct is not None
        payload = body(
            rng, struct, {"config": body(rng, Struct("", {}), stream_base(rng, stream), 0)}, 0
        ).encode()
    else:
        base = rng.choice(MESSAGES) if struct is not None and "multi_last" in struct.fields else {}
        payload = b"" if struct is None else body(rng, struct, base, edges).encode()
    payload = payload[:PAYLOAD_MAX]
    if words == "CONSUMER.MSG.NEXT" and rng.random() < 0.2:
        payload = number(rng).encode()
    return Case(".".join(["$JS.API", words, *names]).encode(), b"", payload, answers)


def header_value(rng: random.Random, form: str) -> str:
    if rng.random() < 0.05:
        form = rng.choice(VERBS)
    if form == "number":
        return number(rng)
    if form == "duration":
        return rng.choice(DURATIONS)
    return rng.choice((*TEXTS, *STREAMS, "purge"))


def publish(rng: random.Random) -> Case:
    """Return a publish with headers that streams evaluate."""
    names = [rng.choice(sorted(HEADERS)) for _ in range(rng.choice((0, 1, 1, 2, 3)))]
    lines = [f"{name}: {header_value(rng, HEADERS[name])}\r\n" for name in names]
    if rng.random() < 0.01:
        lines *= max(1, rng.choice((30_000, 70_000, 500_000)) // (len("".join(lines)) + 1))
    block = ("NATS/1.0\r\n" + "".join(lines) + "\r\n").encode() if lines else b""
    return Case(rng.choice(SUBJECTS).encode(), block, b"x" * rng.choice((0, 1, 5_000)), (0, 1))


def argument(rng: random.Random, form: str) -> bytes:
    """Return the argument after the verb of an ack."""
    if form == "delay":
        return f'{{"delay":{number(rng)}}}'.encode() if rng.random() < 0.5 else rng.choice(DURATIONS).encode()
    if form == "pull":
        struct = BODIES["CONSUMER.MSG.NEXT"].struct
        assert struct is not None
        return body(rng, struct, {}, 2).encode()
    return rng.choice(TEXTS).encode() if form else b""


def ack(rng: random.Random, replies: list[bytes]) -> Case:
    """Return an ack of a random delivery, or one that belongs to no delivery."""
    verb = rng.choice(sorted(ACKS))
    text = argument(rng, ACKS[verb])
    payload = verb.encode() + (b" " + text if text else b"")
    if replies and rng.random() < 0.7:
        return Case(rng.choice(replies), b"", payload, (0, None))
    tokens = ".".join(number(rng) for _ in range(rng.choice((4, 5, 5, 6))))
    where = f"$JS.ACK.{rng.choice(STREAMS)}.{rng.choice(CONSUMERS)}.{tokens}"
    return Case(where[:3_900].encode(), b"", payload, (0, None))


def connect(rng: random.Random) -> bytes:
    """Return the arguments of a CONNECT."""
    if rng.random() < 0.1:
        return rng.choice(GARBAGE)[:3_000]
    fields = {}
    for _ in range(rng.randint(0, 4)):
        name = rng.choice(sorted(CONNECT_FIELDS))
        kinds = {
            str: quoted(rng.choice(TEXTS)[:500]),
            bool: rng.choice(("true", "false")),
            int: number(rng),
            dict: "{}",
        }
        fields[name] = wrong(rng) if rng.random() < 0.1 else kinds[CONNECT_FIELDS[name][1]]
    return ("{" + ",".join(f'"{name}":{text}' for name, text in fields.items()) + "}").encode()[:3_900]


def case(rng: random.Random, replies: list[bytes]) -> Case:
    """Return one request; `replies` are the ack subjects of the deliveries so far."""
    return rng.choices((api, publish, lambda rng: ack(rng, replies)), (6, 3, 1))[0](rng)
