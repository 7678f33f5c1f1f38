"""Finds out why a consumer delivers nothing.

The reasons are those that end a pump (consumer.pyx: `deliver_some`), and those for which no message is left to
deliver. An operator should act on the first reason; the others would stop the consumer after it. Without a reason
that stops deliveries, the consumer delivers.

This module reads the state of the consumer, and changes nothing. It has no cost until a client requests the reasons.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyjs.jetstream.manage.stream_info import know_subjects
from pyjs.jetstream.why.near import nearest
from pyjs.jetstream.why.reasons import Kind, Moment, Reason, about, counted
from pyjs.jetstream.why.receivers import SUBJECTS_MAX, receivers
from pyjs.store.index.subject_walk import SubjectWalk

if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import Any

    from pyjs.jetstream.consumer.consumer import Consumer
    from pyjs.jetstream.why.receivers import Receivers

LOOK_STEP = 10_000  # subjects compared with a filter between two yields, in about a millisecond
SLOW_SIZE = 1 << 20  # bytes that wait for a client, above which the client counts as slow


def why_consumer(consumer: Consumer, now_ns: int) -> Generator[None, None, list[Reason]]:
    """Return the reasons in steps, most important first."""
    moment = Moment(now_ns, consumer.turn.skew)
    if consumer.requests is not None and not consumer.closed:
        consumer.sweep_waiting()  # expired requests do not count
    nothing = yield from _nothing_left(consumer, moment)
    if consumer.closed:
        return []
    found = (
        _paused(consumer, moment),
        _state(consumer),
        nothing,
        *_demand(consumer, moment),
        _ack_pending(consumer, moment) if nothing is None else None,
        _rate(consumer, moment) if nothing is None else None,
        _slow(consumer),
        _given_up(consumer),
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
    """Return the reason why no message is ready for delivery, or None if one is ready."""
    acks, store = consumer.acks, consumer.store
    if acks.pending.n_queued or consumer.cursor.num_pending():
        return None
    if acks.pending.count:
        return _awaiting(consumer, moment)
    if not store.msgs:
        text = f'The stream "{consumer.stream_name}" has no messages.'
        return Reason(Kind.STREAM_EMPTY, text, {"last_seq": store.last_seq})
    missing = yield from _unmatched(consumer)
    if missing is not None:
        return missing
    last = consumer.acks.delivered_seq if consumer.acks.delivered_cseq else 0
    text = f"It has delivered every message that matches, up to sequence {last:,}, and waits for new ones."
    if last == 0:
        start = consumer.cursor.next_seq
        text = (
            f"It begins at sequence {start:,}, and no message from there on matches; it waits for new ones."
        )
    return Reason(Kind.UP_TO_DATE, text, {"delivered_seq": last, "last_seq": store.last_seq})


def _unmatched(consumer: Consumer) -> Generator[None, None, Reason | None]:
    """Return a reason if no stored subject matches the filters."""
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
        text += f" The most similar stored subjects are {', '.join(near)}."
    return Reason(Kind.FILTER_MATCHES_NOTHING, text, {"filters": len(filters), "nearest_subjects": near})


def _awaiting(consumer: Consumer, moment: Moment) -> Reason:
    """Return the reason for a consumer all of whose deliveries wait for an acknowledgement or for a redelivery."""
    pending = consumer.acks.pending
    oldest, due_ns = _oldest(consumer, moment), pending.next_due()
    count = counted(pending.count, "delivery waits", "deliveries wait")
    data = {"ack_pending": pending.count, **oldest}
    text = f"All matching messages were delivered, and {count} for an acknowledgement. {_oldest_text(oldest)}"
    if not due_ns:
        return Reason(Kind.AWAITING_ACKS, text, data)
    data["next_redelivery"] = moment.text(due_ns)
    text += f" The next redelivery is due in {moment.until(due_ns)}."
    is_delayed = pending.n_delayed > 0 or bool(consumer.config.backoff_ns and pending.redelivered)
    return Reason(Kind.BACKOFF if is_delayed else Kind.AWAITING_ACKS, text, data)


def _oldest(consumer: Consumer, moment: Moment) -> dict[str, Any]:
    """Return the fields of the oldest delivery without an acknowledgement."""
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
    first = min(exhausted)
    text = (
        f"{counted(len(exhausted), 'message was', 'messages were')} given up after"
        f" {counted(consumer.config.max_deliver, 'delivery', 'deliveries')} (max_deliver) without an acknowledgement;"
        f" the first is sequence {first:,}. They stay in the stream and are not delivered again."
    )
    data = {"given_up": len(exhausted), "first_given_up_seq": first}
    return Reason(Kind.MAX_DELIVER, text, data, stops=False)


# -- no receivers -----------------------------------------------------------------------------------------------


def _demand(consumer: Consumer, moment: Moment) -> list[Reason]:
    """Return the reasons why no client can get a message now."""
    reason = _pull_demand(consumer, moment) if consumer.push is None else _push_demand(consumer)
    return [reason] if reason is not None else []


def _pull_demand(consumer: Consumer, moment: Moment) -> Reason | None:
    requests = consumer.requests
    assert requests is not None
    if requests.queue.count == 0:
        text = "No pull request waits: no client asks for messages now."
        data = {}
        if consumer.active_at:
            data = {"last_active": moment.text(consumer.active_at)}
            text += (
                f" The last request, delivery or acknowledgement was {moment.ago(consumer.active_at)} ago."
            )
        return Reason(Kind.NO_WAITING_PULL, text, data)
    unread, ack_pending = consumer.cursor.num_pending(), consumer.acks.pending.count
    if not unread or requests.serves_any(unread, ack_pending):
        return None
    waiting = receivers(consumer.account, requests.queue.replies()[:SUBJECTS_MAX])
    if requests.pin.id:
        pin, group = requests.pin.id.decode(), requests.pin.group
        text = (
            f"Another client is pinned in the priority group {group}: only requests with the pin {pin} are served,"
            f" and none of them waits. It was pinned {moment.ago(requests.pin.pinned_at)} ago; CONSUMER.UNPIN ends"
            " that."
        )
        return Reason(Kind.PINNED, text, {"group": group, "pin_id": pin, "waiting": waiting.rows()})
    text = (
        f"{counted(requests.queue.count, 'request waits', 'requests wait')} until min_pending or min_ack_pending is"
        f" reached; there {'is' if unread == 1 else 'are'} {counted(unread, 'unread message')} and"
        f" {counted(ack_pending, 'delivery', 'deliveries')} without an acknowledgement."
    )
    return Reason(
        Kind.OVERFLOW, text, {"num_pending": unread, "ack_pending": ack_pending, "waiting": waiting.rows()}
    )


def _push_demand(consumer: Consumer) -> Reason | None:
    push, flow = consumer.push, consumer.flow
    assert push is not None
    subject, group = consumer.config.deliver_subject, consumer.config.deliver_group
    if not push.bound:
        wanted = f'{subject} in the queue group "{group}"' if group else subject
        text = f"Nobody is subscribed to its deliver subject {wanted}."
        others = receivers(consumer.account, [push.subject])
        if others.sessions or others.elsewhere:
            text += f" Subscribed otherwise: {others}."
        data = {"deliver_subject": subject, **({"deliver_group": group} if group else {})}
        return Reason(Kind.NO_INTEREST, text, data)
    if not flow.window or flow.pending <= flow.window:
        return None
    slow = receivers(consumer.account, [push.subject])
    text = (
        f"Flow control: {flow.pending:,} bytes were sent, and the subscriber has not answered the flow control"
        f" request for {flow.asked:,} of them. It answers when it has read them: {slow}."
    )
    return Reason(
        Kind.FLOW_CONTROL,
        text,
        {"unconfirmed_bytes": flow.pending, "window": flow.window, "receivers": slow.rows()},
    )


def _holders(consumer: Consumer) -> Receivers:
    """Return the clients to which a consumer delivers now."""
    if consumer.push is not None:
        return receivers(consumer.account, [consumer.push.subject])
    assert consumer.requests is not None
    return receivers(consumer.account, consumer.requests.queue.replies()[:SUBJECTS_MAX])


# -- limits ----------------------------------------------------------------------------------------------------


def _ack_pending(consumer: Consumer, moment: Moment) -> Reason | None:
    most, pending = consumer.config.max_ack_pending, consumer.acks.pending
    if most <= 0 or pending.count < most or pending.n_queued:
        return None
    oldest, due_ns, holders = _oldest(consumer, moment), pending.next_due(), _holders(consumer)
    data = {"ack_pending": pending.count, "max_ack_pending": most, **oldest, "holders": holders.rows()}
    text = (
        f"max_ack_pending is reached: {pending.count:,} of {most:,} deliveries wait for an acknowledgement."
        f" {_oldest_text(oldest)}"
    )
    if due_ns:
        data["next_redelivery"] = moment.text(due_ns)
        text += f" The next redelivery is due in {moment.until(due_ns)}."
    text += f" Clients that receive now: {holders}."
    return Reason(Kind.MAX_ACK_PENDING, text, data)


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


def _slow(consumer: Consumer) -> Reason | None:
    """Return a reason if much output waits for every client that receives messages of the consumer."""
    clients = _holders(consumer)
    slow = [session for session in clients.sessions if session.pending_size() >= SLOW_SIZE]
    if not slow or clients.elsewhere or len(slow) < len(clients.sessions):
        return None
    text = f"Its clients read slowly; messages wait in the output of their connections: {clients}."
    return Reason(Kind.SLOW_RECEIVER, text, {"receivers": clients.rows()}, stops=False)
