"""Numbers of nats-server's API errors that this server never answers, with reasons, and the page docs/errors.md.

`python -m tests.conformance.harness.error_numbers` writes the page; test_errors.py checks that it is current and that
the numbers here and those of pyjs.jetstream.errcodes are together all numbers of nats-server 2.15.
"""

from __future__ import annotations

from typing import NamedTuple

from pyjs.jetstream import errcodes

from .process import REPOSITORY

PAGE = REPOSITORY / "docs" / "errors.md"
FIRST, LAST = 10002, 10228  # every number between them is one of nats-server 2.15.1
CLUSTER = "clusters of this server do not need this error"
DEAD = "nats-server 2.15 defines this error but never sends it"
TEMPLATES = "stream templates were removed from nats-server"


class NotAnswered(NamedTuple):
    """A number that this server never answers."""

    err_code: int
    code: int
    description: str
    reason: str


NOT_ANSWERED = [
    NotAnswered(*row)
    for row in (
        (10004, 503, "incomplete results", DEAD),
        (10006, 500, "JetStream not in clustered mode", CLUSTER),
        (10007, 500, "JetStream cluster not assigned to this server", CLUSTER),
        (10009, 500, "JetStream cluster can not handle request", CLUSTER),
        (10011, 400, "tags placement not supported for operation", DEAD),
        (
            10016,
            400,
            "consumer expected to be durable but no durable name set in subject",
            "the subject of the request always has the name",
        ),
        (10019, 400, "consumer expected to be ephemeral but detected a durable name set in subject", DEAD),
        (10032, 400, "stream mirrors can not have both start seq and start time configured", DEAD),
        (10033, 400, "stream mirrors can not contain filtered subjects", DEAD),
        (10036, 503, "not currently supported in clustered mode", DEAD),
        (10041, 500, "{err}", CLUSTER),
        (
            10042,
            500,
            "JetStream unable to subscribe to restore snapshot {subject}: {err}",
            "the server's own subscription never fails",
        ),
        (10048, 500, "{err}", CLUSTER),
        (
            10053,
            500,
            "{err}",
            "each limit of an account has its own error (10002, 10023, 10027, 10028, 10047)",
        ),
        (10061, 400, "Replicas configuration can not be updated", DEAD),
        (
            10063,
            503,
            "expected stream sequence does not match",
            "no code of nats-server 2.15 uses this number",
        ),
        (
            10064,
            500,
            "snapshot failed: {err}",
            "nats-server sends it only if a disk fails; this server then ends the transfer without its last message",
        ),
        (10066, 500, "{err}", TEMPLATES),
        (10067, 500, "{err}", TEMPLATES),
        (10068, 404, "template not found", TEMPLATES),
        (10072, 500, "JetStream unable to open temp storage for restore", DEAD),
        (10073, 400, "template name in subject does not match request", TEMPLATES),
        (
            10076,
            503,
            "JetStream not enabled",
            "a server without JetStream answers 503 No Responders to every request",
        ),
        (
            10078,
            400,
            "consumer config required",
            "a request without a configuration creates an ephemeral consumer",
        ),
        (10085, 400, "consumer in pull mode requires a durable name", DEAD),
        (10087, 400, "consumer max waiting needs to be positive", "negative numbers count as the default"),
        (10092, 400, "consumer direct on a mapped consumer", DEAD),
        (10093, 400, "consumer filter subject is not a valid subset of the interest subjects", DEAD),
        (10096, 500, "stream not valid", "nats-server sends it only while the stream is being deleted"),
        (
            10103,
            400,
            "durable name can not contain '.', '*', '>'",
            "invalid names are refused earlier, with 10052",
        ),
        (
            10104,
            500,
            "error creating store for consumer: {err}",
            "nats-server sends it only if a disk fails; this server then sends 10012",
        ),
        (
            10105,
            400,
            "consumer already exists and is still active",
            "nats-server sends it only if two requests arrive at the same instant; "
            "otherwise, as on this server, the consumer is updated",
        ),
        (
            10106,
            400,
            "consumer replacement durable config not the same",
            "nats-server sends it only if two requests arrive at the same instant; "
            "otherwise, as on this server, the consumer is updated",
        ),
        (10114, 400, "consumer max request batch needs to be > 0", "negative numbers count as the default"),
        (10117, 500, "subject details would exceed maximum allowed", DEAD),
        (
            10158,
            409,
            "duplicate message id is in process",
            "only clusters of nats-server send it, while the first message with the id is not stored yet",
        ),
        (10163, 503, "expected last sequence per subject temporarily unavailable", DEAD),
        (
            10167,
            429,
            "too many requests",
            "nats-server sends it if the queue of a stream is full; this server has no such queue",
        ),
        (10180, 412, "min last sequence", DEAD),
        (10181, 400, "consumer ack policy invalid", "unknown policies are refused earlier, with 10025"),
        (10182, 400, "consumer replay policy invalid", "unknown policies are refused earlier, with 10025"),
        (10202, 400, "cluster member change is in progress", CLUSTER),
        (10224, 400, "JetStream system rescue not applied: {err}", CLUSTER),
        (
            10228,
            400,
            "stream source consumer stalled on flow control",
            "sources of this server do not need a consumer that could stall",
        ),
    )
]

HEAD = """# Errors of the JetStream API

The answer to a refused request contains an error with the `err_code`, `code` and `description` of nats-server 2.15:
`{"error":{"code":404,"err_code":10059,"description":"stream not found"}}`. In the tables, a name in braces stands for
a value; `{err}` alone stands for the whole text. Only this server has the errors from 20001 on.

Tests provoke each error of the first table on this server and on nats-server (`tests/conformance/errors.md`). The
exceptions are listed, with reasons, in `tests/conformance/test_errors.py`.

`python -m tests.conformance.harness.error_numbers` writes this page.

## Errors that this server sends

| err_code | code | description |
|---|---|---|
"""
MIDDLE = """
## Errors of nats-server that this server never sends

| err_code | code | description | reason |
|---|---|---|---|
"""


def answered() -> list[errcodes.ErrorCode]:
    """Return the errors of this server, by number."""
    rows = [row for row in vars(errcodes).values() if isinstance(row, errcodes.ErrorCode)]
    return sorted(rows, key=lambda row: row.err_code)


def page() -> str:
    """Return the text of docs/errors.md."""
    first = "".join(f"| {row.err_code} | {row.code} | {row.template} |\n" for row in answered())
    second = "".join(f"| {' | '.join(str(field) for field in row)} |\n" for row in NOT_ANSWERED)
    return HEAD + first + MIDDLE + second


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
