"""The subjects that a consumer listens to and answers on."""

from __future__ import annotations

import pytest

from pyjs.base.nuid import short_hash
from pyjs.jetstream.consumer.subjects import ConsumerSubjects

HASH = short_hash("A")


@pytest.mark.parametrize(("ack_v2", "names"), [(False, "S.c"), (True, f"hub.{HASH}.S.c")])
def test_deliveries_carry_the_first_prefix_of_the_two(ack_v2: bool, names: str) -> None:
    subjects = ConsumerSubjects("A", "S", "c", "hub", ack_v2)

    prefixes = subjects.ack_prefixes()

    assert prefixes[0] == f"$JS.ACK.{names}.".encode()
    assert {prefix + b">" for prefix in prefixes} == set(subjects.acks())
    assert subjects.flow("x1") == f"$JS.FC.{names}.x1".encode()


def test_a_domain_has_its_own_subject_of_pull_requests() -> None:
    plain, hub = ConsumerSubjects("A", "S", "c", "", False), ConsumerSubjects("A", "S", "c", "hub", False)

    assert plain.pulls() == [b"$JS.API.CONSUMER.MSG.NEXT.S.c"]
    assert hub.pulls() == [*plain.pulls(), b"$JS.hub.API.CONSUMER.MSG.NEXT.S.c"]


def test_acks_without_a_domain_name_none() -> None:
    subjects = ConsumerSubjects("A", "S", "c", "", False)
    assert subjects.acks() == [b"$JS.ACK.S.c.>", f"$JS.ACK._.{HASH}.S.c.>".encode()]
