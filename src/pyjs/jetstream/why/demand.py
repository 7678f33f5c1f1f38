"""The reasons why no client can get a message of a consumer now: no request is waiting, or none can be served."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyjs.jetstream.why.reasons import Kind, Reason, counted
from pyjs.jetstream.why.receivers import REQUESTS_MAX, holders_of, receivers

if TYPE_CHECKING:
    from typing import Any

    from pyjs.jetstream.consumer.consumer import Consumer
    from pyjs.jetstream.why.reasons import Moment

SLOW_SIZE = 1 << 20  # a client with at least this many pending bytes is reported as slow


def demand_reason(consumer: Consumer, moment: Moment) -> Reason | None:
    """Return the reason why no client can get a message now, or None if one can."""
    if consumer.push is not None:
        return _no_interest(consumer, moment) or _flow(consumer, moment)
    return _no_request(consumer, moment) or _pinned(consumer, moment) or _overflow(consumer, moment)


def slow_reason(consumer: Consumer, moment: Moment) -> Reason | None:
    """Return a reason if every receiving client has at least SLOW_SIZE pending bytes, otherwise None."""
    clients = holders_of(consumer, is_shown=moment.shows_clients)
    slow = [session for session in clients.sessions if session.pending_size() >= SLOW_SIZE]
    if not slow or clients.elsewhere or len(slow) < len(clients.sessions):
        return None
    text = f"Its clients read slowly; messages wait in the output of their connections: {clients}."
    return Reason(Kind.SLOW_RECEIVER, text, clients.fields("receivers"), stops=False)


# -- pull ------------------------------------------------------------------------------------------------------


def _no_request(consumer: Consumer, moment: Moment) -> Reason | None:
    requests = consumer.requests
    assert requests is not None
    replies = requests.queue.first_replies(REQUESTS_MAX)
    if requests.queue.count > len(replies) or any(map(consumer.account.has_interest, replies)):
        return None  # a request whose client has left does not count
    text, data = "No pull request waits: no client asks for messages now.", _next_message(consumer)
    if consumer.active_at:
        data["last_active"] = moment.text(consumer.active_at)
        text += f" The last request, delivery or acknowledgement was {moment.ago(consumer.active_at)} ago."
    if "next_bytes" in data:
        text += (
            f" The next message has {counted(data['next_bytes'], 'byte')} without headers of the delivery;"
            " a request with a smaller max_bytes is answered with 409 at once."
        )
    return Reason(Kind.NO_WAITING_PULL, text, data)


def _next_message(consumer: Consumer) -> dict[str, Any]:
    """Return the sequence and the size of the next message that was never delivered.

    Return {} if there is none, or if the consumer has filters.
    """
    if not consumer.cursor.num_pending() or consumer.filters:
        return {}
    seq = consumer.store.catalogue.next_live(consumer.cursor.next_seq)
    return {"next_seq": seq, "next_bytes": consumer.store.catalogue.size_at(seq)} if seq else {}


def _is_served(consumer: Consumer) -> bool:
    """Return True if a waiting request may get the next message, or if no message is ready."""
    requests, again = consumer.requests, consumer.acks.pending.n_queued > 0
    assert requests is not None
    unread = consumer.cursor.num_pending()
    if not again and not unread:
        return True  # there is nothing to serve
    return requests.serves_any(unread if again else unread - 1, consumer.acks.pending.count)


def _pinned(consumer: Consumer, moment: Moment) -> Reason | None:
    requests = consumer.requests
    assert requests is not None
    if not requests.pin.id or _is_served(consumer):
        return None
    pin, group = requests.pin.id.decode(), requests.pin.group
    text = (
        f"Another client is pinned in the priority group {group}: only requests with its pin are served, and none of"
        f" them waits. It was pinned {moment.ago(requests.pin.pinned_at)} ago; CONSUMER.UNPIN ends that."
    )
    waiting = holders_of(consumer, is_shown=moment.shows_clients)
    return Reason(Kind.PINNED, text, {"group": group, "pin_id": pin, **waiting.fields("waiting")})


def _overflow(consumer: Consumer, moment: Moment) -> Reason | None:
    requests = consumer.requests
    assert requests is not None
    if _is_served(consumer):
        return None
    unread, ack_pending = consumer.cursor.num_pending(), consumer.acks.pending.count
    text = (
        f"{counted(requests.queue.count, 'request waits', 'requests wait')} until min_pending or min_ack_pending is"
        f" reached; there {'is' if unread == 1 else 'are'} {counted(unread, 'unread message')} and"
        f" {counted(ack_pending, 'delivery', 'deliveries')} without an acknowledgement."
    )
    waiting = holders_of(consumer, is_shown=moment.shows_clients)
    data = {"num_pending": unread, "ack_pending": ack_pending, **waiting.fields("waiting")}
    return Reason(Kind.OVERFLOW, text, data)


# -- push ------------------------------------------------------------------------------------------------------


def _no_interest(consumer: Consumer, moment: Moment) -> Reason | None:
    push = consumer.push
    assert push is not None
    if push.bound:
        return None
    subject, group = consumer.config.deliver_subject, consumer.config.deliver_group
    wanted = f'{subject} in the queue group "{group}"' if group else subject
    text = f"Nobody is subscribed to its deliver subject {wanted}."
    for sub in consumer.account.subs.match(push.subject)[:1]:
        given, queue = sub.subject.decode("utf-8", "replace"), sub.queue.decode("utf-8", "replace")
        if given != subject:
            text += f" The subscription {given} matches it, but a wildcard does not count."
        else:
            text += (
                f' A subscription is in the queue group "{queue}".'
                if queue
                else " A subscription has no queue group."
            )
        clients = receivers(consumer.account, [push.subject], is_shown=moment.shows_clients)
        text += f" Its client: {clients}."
    data = {"deliver_subject": subject, **({"deliver_group": group} if group else {})}
    return Reason(Kind.NO_INTEREST, text, data)


def _flow(consumer: Consumer, moment: Moment) -> Reason | None:
    flow = consumer.flow
    if not flow.window or flow.pending <= flow.window:
        return None
    slow = holders_of(consumer, is_shown=moment.shows_clients)
    text = (
        f"Flow control: {flow.pending:,} bytes were sent, and the subscriber has not answered the flow control"
        f" request for {flow.asked:,} of them. It answers when it has read them: {slow}."
    )
    data = {"unconfirmed_bytes": flow.pending, "window": flow.window, **slow.fields("receivers")}
    return Reason(Kind.FLOW_CONTROL, text, data)
