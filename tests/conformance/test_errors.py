"""Every API error that the server can return is provoked by a scenario, or listed here with the reason why not."""

from __future__ import annotations

import re

from tests.conformance.harness.error_numbers import FIRST, LAST, NOT_ANSWERED, PAGE, answered, page
from tests.conformance.harness.errors import CONFORMANCE, read_table
from tests.conformance.harness.process import REPOSITORY

from pyjs.jetstream import errcodes

_DISK = "only a disk that fails"
_OURS = "bulk reads are not nats-server's, see tests/unit/jetstream/api/test_bulk_api.py"
_ANSWER = (
    "the API of another account has to answer nonsense, see tests/unit/jetstream/mirror/test_consumer_link.py"
)
_CLUSTER = "only three servers answer it, see test_cluster_jetstream.py and test_cluster_rules.py"
_OPERATING = "only three servers answer it, see test_cluster_operating.py"
NOT_PROVOKED = {
    errcodes.STREAM_DELETE: _DISK,
    errcodes.STREAM_GENERAL: "a defect of ours: tests/unit/jetstream/test_faults.py plants some",
    errcodes.STREAM_RESTORE: "some texts differ, see test_error_triggers.py",
    errcodes.NO_LIMITS: "accounts with tokens: test_error_triggers.py",
    errcodes.STREAM_OFFLINE_REASON: "no nats-server stores a newer level, see tests/unit/jetstream/test_offline.py",
    errcodes.CONSUMER_OFFLINE_REASON: "no nats-server stores a newer level, see tests/unit/jetstream/test_offline.py",
    errcodes.CONSUMER_CREATE_DURABLE_AND_NAME_MISMATCH: "the names were compared with the subject before",
    errcodes.MESSAGE_COUNTER_BROKEN: "restored streams have other values: test_error_triggers.py",
    errcodes.MIRROR_CONSUMER_SETUP_FAILED: _ANSWER,
    errcodes.SOURCE_CONSUMER_SETUP_FAILED: _ANSWER,
    errcodes.NO_ACCOUNT: "only with several servers: test_cluster_operating.py",
    errcodes.STREAM_MOVE_NOT_IN_PROGRESS: "only with several servers: test_cluster_operating.py",
    errcodes.BULK_NOT_ALLOWED: _OURS,
    errcodes.BULK_OTHER_STREAM: _OURS,
    errcodes.BULK_BAD_REQUEST: _OURS,
    errcodes.DEAD_LETTERS_CONFIG: _OURS,
    errcodes.DEAD_LETTERS_REQUEST: _OURS,
    errcodes.STREAM_MESSAGES_LOST: _OURS,
    errcodes.CONSUMER_STREAM_IDENTITY_MISMATCH: "the text has the identity: test_error_triggers.py",
    errcodes.CLUSTER_NO_PEERS: _CLUSTER,
    errcodes.CLUSTER_NOT_AVAILABLE: "a cluster without a majority answers it after ten seconds",
    errcodes.CLUSTER_PEER_NOT_MEMBER: _CLUSTER,
    errcodes.CLUSTER_SERVER_NOT_MEMBER: _CLUSTER,
    errcodes.PEER_REMAP_FAILED: _CLUSTER,
    errcodes.STREAM_MOVE_AND_SCALE: _CLUSTER,
    errcodes.STREAM_MOVE_IN_PROGRESS: "a move is soon over, see tests/unit/jetstream/member/test_moving.py",
    errcodes.STREAM_RECONFIGURE_IN_PROGRESS: "soon over too, see tests/unit/jetstream/member/test_scaling.py",
    errcodes.STREAM_OFFLINE: _OPERATING,
    errcodes.CONSUMER_OFFLINE: _OPERATING,
    errcodes.CONSUMER_REPLICAS_EXCEEDS_STREAM: "no stream of one server has more than one replica",
    errcodes.CONSUMER_REPLICAS_SHOULD_MATCH_STREAM: "no stream of one server has more than one replica",
}


BY_NUMBER = {row.err_code: row for row in vars(errcodes).values() if isinstance(row, errcodes.ErrorCode)}


def raised() -> set[int]:
    """Return the numbers of the errors that the source names."""
    texts = [
        path.read_text("utf-8")
        for suffix in ("*.py", "*.pyx")
        for path in (REPOSITORY / "src/pyjs").rglob(suffix)
        if path.name != "errcodes.py"
    ]
    names = {name for text in texts for name in re.findall(r"errcodes\.([A-Z_]{4,})", text)}
    numbers = {int(number) for text in texts for number in re.findall(r"refuse\(m, (10\d{3})", text)}
    return numbers | {getattr(errcodes, name).err_code for name in names}


def test_every_error_that_is_raised_is_provoked_or_has_a_reason() -> None:
    # given
    provoked = {error.err_code for error in read_table()}
    excused = {code.err_code for code in NOT_PROVOKED}
    # when
    missing = raised() - provoked - excused
    # then
    assert sorted(missing) == []
    assert sorted(excused & provoked) == [], "a scenario provokes it: it needs no excuse"


def test_every_row_names_a_scenario() -> None:
    for name in read_table().values():
        assert (CONFORMANCE / f"scenarios/{name}.txt").is_file(), name


def test_codes_and_texts_are_those_of_the_source() -> None:
    for error in read_table():
        row = BY_NUMBER[error.err_code]
        assert row.code == error.code
        pattern = re.sub(r"\\\{\w+\\\}", ".*", re.escape(row.template))
        assert re.fullmatch(pattern, error.description, re.DOTALL), error


def test_each_number_of_nats_server_is_answered_or_has_a_reason() -> None:
    # given
    ours = [row.err_code for row in answered() if row.err_code <= LAST]
    others = [row.err_code for row in NOT_ANSWERED]
    # then
    assert sorted(ours + others) == list(range(FIRST, LAST + 1))
    assert all(len(row.reason.split()) > 3 for row in NOT_ANSWERED)


def test_the_page_of_errors_is_current() -> None:
    assert PAGE.read_text("utf-8") == page(), "python -m tests.conformance.harness.error_numbers"
