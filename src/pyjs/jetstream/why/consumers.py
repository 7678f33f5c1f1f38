"""The reasons why a consumer delivers nothing.

The reasons are the conditions that end a pump (consumer.pyx: `deliver_some`), and those under which no message is
left to deliver. An operator should remove the first reason; after that, the next reason stops the consumer. If no
reason stops deliveries, the consumer delivers.
This module reads the state of the consumer, and changes nothing. It has no cost until a client requests the reasons.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyjs.base.clock import NS_PER_S
from pyjs.jetstream.consumer.info import know_pending
from pyjs.jetstream.dead_letters.sender import LetterSender
from pyjs.jetstream.manage.stream_info import know_subjects
from pyjs.jetstream.why.demand import demand_reason, slow_reason
from pyjs.jetstream.why.near import SUBJECTS_MAX, nearest
from pyjs.jetstream.why.reasons import Kind, Moment, Reason, about, counted
from pyjs.jetstream.why.receivers import holders_of
from pyjs.store.index.subject_walk import SubjectWalk

if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import Any

    from pyjs.jetstream.consumer.consumer import Consumer

LOOK_STEP = 10_000  # subjects compared with a filter between two yields: about a millisecond
NEVER_NS = 100 * 365 * 86_400 * NS_PER_S  # a redelivery later than this never comes: ack policy flow_control


def why_consumer(
    consumer: Consumer, now_ns: int, *, shows_clients: bool = True
) -> Generator[None, None, list[Reason] | None]:
    """Return the reasons why a consumer delivers nothing, most important first; yield between steps.

    Return None if the consumer is closed, or is closed meanwhile.
    """
    yield from know_pending(consumer)
    if consumer.closed:
        return None
    moment = Moment(now_ns, consumer.turn.skew, shows_clients)
    nothing = yield from _nothing_left(consumer, moment)
    if consumer.closed:
        return None
    given_up = _given_up(consumer)
    idle = nothing is not None
    found = (
        _paused(consumer, moment),
        _state(consumer),
        given_up if idle else None,  # the remaining messages have reached max_deliver
        nothing,
        demand_reason(consumer, moment),
        None if idle else _ack_pending(consumer, moment),
        None if idle else _rate(consumer, moment),
        slow_reason(consumer, moment),
        None if idle else given_up,
    )
    return [each for each in found if each is not None]


def _paused(consumer: Consumer, moment: Moment) -> Reason | None:
    if consumer.paused_until <= moment.now_ns:
        return None
    until = moment.text(consumer.paused_until)
    rest = moment.until(consumer.paused_until)
    text = f"It is paused until {until}, for another {rest}; CONSUMER.PAUSE without a time ends that."
    return Reason(Kind.PAUSED, text, {"until": until})


def _state(consumer: Consumer) -> Reason | None:
    if consumer.keeper.is_rewriting:
        text = "Its state is being written to the disk; it continues afterwards. If this lasts, the disk is slow."
        return Reason(Kind.WRITING_STATE, text)
    if consumer.store.changing:
        return Reason(Kind.PURGING, "Messages are being purged; it continues when the purge has ended.")
    return None


# -- nothing to deliver ----------------------------------------------------------------------------------------


def _nothing_left(consumer: Consumer, moment: Moment) -> Generator[None, None, Reason | None]:
    """Return the reason why no message is ready for delivery, or None if one is ready; yield between steps."""
    acks, store = consumer.acks, consumer.store
    if acks.pending.n_queued or consumer.cursor.num_pending():
        return None
    if acks.pending.count:
        return _awaiting(consumer, moment)
    if not store.msgs:
        text = f'The stream "{consumer.stream_name}" has no messages.'
        return Reason(Kind.STREAM_EMPTY, text, {"last_seq": store.last_seq})
    if not acks.delivered_cseq and consumer.config.deliver_policy != "new":
        missing = yield from _unmatched(consumer)
        if missing is not None:
            return missing
    last = acks.delivered_seq if acks.delivered_cseq else 0
    text = f"It has delivered every message that matches, up to sequence {last:,}, and waits for new ones."
    if last == 0:
        start = consumer.cursor.next_seq
        text = (
            f"It begins at sequence {start:,}, and no message from there on matches; it waits for new ones."
        )
    return Reason(Kind.UP_TO_DATE, text, {"delivered_seq": last, "last_seq": store.last_seq})


def _unmatched(consumer: Consumer) -> Generator[None, None, Reason | None]:
    """Return a reason if no stored subject matches the consumer's filters, otherwise None; yield between steps."""
    store, filters = consumer.store, consumer.filters
    if not filters:
        return None
    wanted = store.make_filter(filters)
    yield from know_subjects(store, wanted)
    walk = SubjectWalk(store.catalogue, wanted)
    while not walk.look(LOOK_STEP):
        yield
    if walk.total:
        return None
    near = yield from nearest(store, filters[0])
    shown = ", ".join(each.decode("utf-8", "replace") for each in filters[:3])
    others = f" and {len(filters) - 3:,} more" if len(filters) > 3 else ""
    text = f"No stored message has a subject that matches its filter {shown}{others}."
    if near:
        among = (
            f"Of the first {SUBJECTS_MAX:,} stored subjects"
            if _has_more_subjects(consumer)
            else "Of the stored subjects"
        )
        text += f" {among}, the most similar are {', '.join(near)}."
    return Reason(Kind.FILTER_MATCHES_NOTHING, text, {"filters": len(filters), "nearest_subjects": near})


def _has_more_subjects(consumer: Consumer) -> bool:
    """Return whether the stream has more subjects than `nearest` compares."""
    return consumer.store.catalogue.num_subjects() > SUBJECTS_MAX


def _awaiting(consumer: Consumer, moment: Moment) -> Reason:
    """Return the reason for a consumer whose remaining messages all wait for an acknowledgement or a redelivery."""
    pending = consumer.acks.pending
    oldest, due_ns = _oldest(consumer, moment), _next_due(consumer, moment)
    count = counted(pending.count, "delivery waits", "deliveries wait")
    data = {"ack_pending": pending.count, "nak_delayed": pending.n_delayed, **oldest}
    text = f"All matching messages were delivered, and {count} for an acknowledgement. {_oldest_text(oldest)}"
    if due_ns:
        data["next_redelivery"] = moment.text(due_ns)
        text += f" The next redelivery is due in {moment.until(due_ns)}."
    is_delayed = 2 * pending.n_delayed > pending.count or bool(
        consumer.config.backoff_ns and pending.redelivered
    )
    return Reason(Kind.BACKOFF if is_delayed else Kind.AWAITING_ACKS, text + _delayed_text(consumer), data)


def _next_due(consumer: Consumer, moment: Moment) -> int:
    """Return the time of the next redelivery on the monotonic clock in ns, or 0 if none is planned."""
    due_ns = consumer.acks.pending.next_due()
    return due_ns if due_ns - moment.now_ns < NEVER_NS else 0


def _delayed_text(consumer: Consumer) -> str:
    delayed = consumer.acks.pending.n_delayed
    return f" A NAK with a delay holds back {counted(delayed, 'of them', 'of them')}." if delayed else ""


def _oldest(consumer: Consumer, moment: Moment) -> dict[str, Any]:
    """Return the fields of the oldest unacknowledged delivery, or {} if there is none."""
    rows = consumer.acks.pending.first(1)
    if not rows:
        return {}
    seq, _, sent_at, count, _, _ = rows[0]
    return {
        "oldest_seq": seq,
        "oldest_deliveries": count,
        "oldest_delivered": moment.text(sent_at),
        "oldest_age": about(max(moment.now_ns - sent_at, 0)),
    }


def _oldest_text(oldest: dict[str, Any]) -> str:
    times = counted(oldest["oldest_deliveries"], "delivery", "deliveries")
    return f"The oldest is sequence {oldest['oldest_seq']:,}, after {times}, the last one {oldest['oldest_age']} ago."


def _given_up(consumer: Consumer) -> Reason | None:
    exhausted = consumer.acks.exhausted
    if not exhausted:
        return None
    first = next(iter(exhausted))
    if isinstance(consumer.letters, LetterSender):
        return _unsent_letters(consumer, consumer.letters, first)
    text = (
        f"{counted(len(exhausted), 'message was', 'messages were')} given up after"
        f" {counted(consumer.config.max_deliver, 'delivery', 'deliveries')} (max_deliver) without an acknowledgement,"
        f" such as sequence {first:,}. They stay in the stream and are not delivered again."
    )
    data = {"given_up": len(exhausted), "given_up_seq": first}
    return Reason(Kind.MAX_DELIVER, text, data, stops=False)


def _unsent_letters(consumer: Consumer, sender: LetterSender, first: int) -> Reason:
    """Return the reason for given-up messages whose dead letters are not stored yet."""
    count, name = len(consumer.acks.exhausted), sender.target.stream
    data: dict[str, Any] = {"given_up": count, "given_up_seq": first, "dead_letter_stream": name}
    waiting = counted(count, "given-up message waits", "given-up messages wait")
    text = (
        f'{waiting} for a dead letter in the stream "{name}", such as sequence {first:,}.'
        " Until then, they are not removed and not delivered again."
    )
    refused = sender.queue.first_refusal()
    if refused is not None:
        seq, refusal = refused
        data |= {"refused_seq": seq, "refusal": refusal}
        text += f" The letter of sequence {seq:,} is refused: {refusal}. It is tried again within 30 seconds."
    return Reason(Kind.DEAD_LETTERS, text, data, stops=False)


# -- limits ----------------------------------------------------------------------------------------------------


def _ack_pending(consumer: Consumer, moment: Moment) -> Reason | None:
    most, pending = consumer.config.max_ack_pending, consumer.acks.pending
    if most <= 0 or pending.count < most or pending.n_queued:
        return None
    oldest, due_ns = _oldest(consumer, moment), _next_due(consumer, moment)
    holders = holders_of(consumer, is_shown=moment.shows_clients)
    data = {"ack_pending": pending.count, "max_ack_pending": most, "nak_delayed": pending.n_delayed, **oldest}
    text = (
        f"max_ack_pending is reached: {pending.count:,} of {most:,} deliveries wait for an acknowledgement."
        f" {_oldest_text(oldest)}{_delayed_text(consumer)}"
    )
    if due_ns:
        data["next_redelivery"] = moment.text(due_ns)
        text += f" The next redelivery is due in {moment.until(due_ns)}."
    kind = Kind.MAX_ACK_PENDING
    if consumer.config.ack_policy == "flow_control":
        kind = Kind.FLOW_CONTROL
        text += " The subscriber acknowledges with its answer to flow control, which has not come."
    text += f" Clients that receive now: {holders}."
    return Reason(kind, text, {**data, **holders.fields("holders")})


def _rate(consumer: Consumer, moment: Moment) -> Reason | None:
    pacing = consumer.pacing
    if pacing.hold_until <= moment.now_ns:
        return None
    data = {"until": moment.text(pacing.hold_until)}
    wait = moment.until(pacing.hold_until)
    if pacing.rate_bps:
        text = f"rate_limit_bps is {pacing.rate_bps:,} bits a second: the next message may be sent in {wait}."
        return Reason(Kind.RATE_LIMIT, text, {**data, "rate_limit_bps": pacing.rate_bps})
    if consumer.config.replay_policy == "original":
        text = (
            f"replay_policy is original: the next message is sent in {wait}, at the interval of its arrival."
        )
        return Reason(Kind.REPLAY, text, data)
    return None
