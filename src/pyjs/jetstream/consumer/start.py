"""The first sequence of a new consumer, determined from its deliver policy and the stream, in steps.

Source: nats.docs "DeliverPolicy"; first sequences and counts probed on nats-server 2.15.1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pyjs.base.bounds import wrapped_ns
from pyjs.jetstream.config.consumer import ConsumerConfig
from pyjs.store import searches
from pyjs.store.index.filter import StoreFilter
from pyjs.store.index.last_seqs import Count, LastSeqs
from pyjs.store.store import StreamStore

if TYPE_CHECKING:
    from collections.abc import Generator

FEW_SUBJECTS = 20_000  # up to this many subjects are searched at once: a millisecond
SEARCH_STEP = 8_000  # number of subjects searched in one step


class Start(NamedTuple):
    """The position at which a consumer begins.

    `skips` has the packed sequences of the messages that are delivered first. After them, the consumer continues
    after `skips_end`.
    """

    seq: int
    skips: bytes = b""
    skips_end: int = 0


def select_start(
    config: ConsumerConfig, store: StreamStore, matches: StoreFilter, max_msgs_per_subject: int
) -> Generator[None, None, Start]:
    """Return the start of a new consumer with `config`, in steps.

    `matches` has the filters of the consumer; `max_msgs_per_subject` is the option of the stream.
    """
    if config.deliver_policy == "last_per_subject" and max_msgs_per_subject != 1 and store.last_seq:
        search = LastSeqs(store.catalogue, matches)
        while not search.step(SEARCH_STEP):
            yield
        if search.n:
            return Start(search.first, search.packed(), search.up_to)
    if config.opt_start_seq:
        return Start(max(config.opt_start_seq, store.first_seq))
    if store.first_seq == 0:
        return Start(1)
    seq = yield from _wanted(config, store, matches)
    return Start(min(max(seq, store.first_seq), store.last_seq + 1))


def restart(config: ConsumerConfig, store: StreamStore) -> Start:
    """Return the start of a consumer with `config` whose stored state cannot be read.

    It begins again at the first message, or at its opt_start_seq if that is higher.
    """
    return Start(max(1, store.first_seq, config.opt_start_seq))


def count(store: StreamStore, matches: StoreFilter, next_seq: int) -> Generator[None, None, Count | None]:
    """Count the matching messages subject by subject, in steps; return None if the consumer should count them.

    That is so if the stream has few subjects, or if the consumer does not begin at the first message.
    """
    if next_seq > store.first_seq or store.catalogue.num_subjects() <= FEW_SUBJECTS:
        return None
    counting = Count(store.catalogue, matches)
    while not counting.step(SEARCH_STEP):
        yield
    return counting


def _wanted(config: ConsumerConfig, store: StreamStore, matches: StoreFilter) -> Generator[None, None, int]:
    policy, catalogue = config.deliver_policy, store.catalogue
    if policy == "last" and not config.filters:
        # even if this message was deleted; then nothing is delivered, as in nats-server
        return store.last_seq
    if policy == "last":
        return (yield from searches.last_match(catalogue, store.last_seq, matches))
    if policy == "by_start_time":
        assert config.opt_start_time_ns is not None
        seq = catalogue.seq_at(wrapped_ns(config.opt_start_time_ns))
        return (yield from _first_from(seq, store, matches))
    if policy == "new":
        return store.last_seq + 1
    if policy == "last_per_subject" and not (
        yield from searches.next_match(catalogue, store.first_seq, matches)
    ):
        return store.last_seq
    return store.first_seq


def _first_from(seq: int, store: StreamStore, matches: StoreFilter) -> Generator[None, None, int]:
    """Return the first match if it is after `seq` and before the last message, otherwise `seq`.

    If `matches` matches every message, return `seq`.
    """
    if matches.all:
        return seq
    first = yield from searches.next_match(store.catalogue, store.first_seq, matches)
    return first if seq < first < store.last_seq else seq
