"""Input in shares: one read may contain more work than a session may do in one turn."""

from __future__ import annotations

import re

from pyjs.config.options import (
    AuthorizationOptions,
    Options,
    PermissionOptions,
    ResponsePermission,
    UserOptions,
)
from pyjs.core.sink import Request
from pyjs.testing import RawClient, VirtualNode

FAN = 200  # subscriptions of the receiver
MSGS = 400  # 80,000 deliveries: more than one share
INPUT_WORK = 65_536  # limit for all sessions in one turn


def flood(node: VirtualNode, receiver: RawClient) -> bytes:
    receiver.send(b"".join(b"SUB flood %d\r\n" % sid for sid in range(FAN)))
    return b"PUB flood 4\r\n%04d\r\n"


def numbered(template: bytes, count: int) -> bytes:
    return b"".join(template % number for number in range(count))


def taken(receiver: RawClient, sid: int) -> list[bytes]:
    """Return the payloads that one of the subscriptions of `receiver` got."""
    return re.findall(rb"MSG flood %d 4\r\n(\d{4})\r\n" % sid, receiver.take())


def one_turn(node: VirtualNode) -> None:
    node.node.turn(node.clock.now_ns())


def test_a_read_that_fans_out_is_parsed_over_several_turns() -> None:
    node = VirtualNode()
    receiver, publisher = node.client(), node.client()
    template = flood(node, receiver)

    publisher.session.receive_data(numbered(template, MSGS) + b"PING\r\n")

    assert publisher.session.in_msgs < MSGS
    assert node.node.has_work
    node.turn()
    assert publisher.session.in_msgs == MSGS
    assert publisher.take() == b"PONG\r\n"
    assert taken(receiver, sid=0) == [b"%04d" % number for number in range(MSGS)]


def test_what_waits_of_a_read_outlives_its_buffer() -> None:
    """All connections share the buffer, so the unparsed rest of a read is copied, including an incomplete publish."""
    node = VirtualNode()
    receiver, publisher = node.client(), node.client()
    data = numbered(flood(node, receiver), MSGS) + b"PING\r\nPUB flood 4\r\n04"
    buffer = bytearray(data)

    publisher.session.receive_buffer(buffer, len(data))
    buffer[:] = b"x" * len(data)

    assert publisher.session.in_msgs < MSGS
    node.turn()
    publisher.send(b"00\r\nPING\r\n")
    assert publisher.take() == b"PONG\r\nPONG\r\n"
    assert taken(receiver, sid=0) == [b"%04d" % number for number in range(MSGS + 1)]


def test_a_read_behind_one_that_waits_is_parsed_after_it() -> None:
    node = VirtualNode()
    receiver, publisher = node.client(), node.client()
    data = numbered(flood(node, receiver), MSGS)
    half = len(data) // 2 + 3

    for part in (data[:half], data[half:]):
        publisher.session.receive_buffer(bytearray(part), len(part))
    node.turn()

    assert taken(receiver, sid=0) == [b"%04d" % number for number in range(MSGS)]


def test_a_quiet_client_is_answered_between_the_shares_of_a_busy_one() -> None:
    node = VirtualNode()
    receiver, publisher, quiet = node.client(), node.client(), node.client()
    publisher.session.receive_data(numbered(flood(node, receiver), MSGS))

    quiet.session.receive_data(b"PING\r\n")
    one_turn(node)

    assert quiet.take() == b"PONG\r\n"
    assert publisher.session.in_msgs < MSGS


def test_sessions_take_turns_with_the_work_of_a_turn() -> None:
    node = VirtualNode()
    receiver = node.client()
    template = flood(node, receiver)
    publishers = [node.client() for _ in range(20)]
    for publisher in publishers:
        publisher.session.receive_data(numbered(template, MSGS))

    for _ in range(2 * len(publishers)):
        one_turn(node)

    counts = [publisher.session.in_msgs for publisher in publishers]
    assert all(0 < count < MSGS for count in counts)
    assert max(counts) <= 3 * min(counts)


def test_a_share_that_piles_up_is_a_few_megabytes_at_most() -> None:
    node = VirtualNode()
    receiver, publisher = node.client(), node.client()
    flood(node, receiver)
    receiver.session.output_paused()
    copied_by_message = FAN * 1024

    publisher.session.receive_data(b"PUB flood 1024\r\n%1024d\r\n" % 7 * 50)
    assert publisher.session.in_msgs * copied_by_message < 2 << 20

    before = publisher.session.in_msgs
    one_turn(node)
    assert (publisher.session.in_msgs - before) * copied_by_message < 6 << 20
    node.turn()
    assert publisher.session.in_msgs == 50


def test_a_refused_publish_is_work_whatever_its_size() -> None:
    node = VirtualNode()
    client = node.client()
    client.session.receive_data(b"PUB $NRG.x 60000\r\n%60000d\r\n" % 7 * 2000)
    assert client.session.in_msgs == 2000

    assert node.node.turn_state.input_left < INPUT_WORK


def test_receivers_that_refuse_are_work() -> None:
    node = VirtualNode()
    client = node.client(b'{"verbose":false,"echo":false}')
    client.send(b"".join(b"SUB own %d\r\n" % sid for sid in range(FAN)))

    client.session.receive_data(b"PUB own 1\r\nx\r\n" * 2_000)

    assert client.session.in_msgs <= 200
    node.turn()
    assert client.session.in_msgs == 2_000
    assert client.take() == b""


def test_requests_that_are_copied_out_are_more_work_than_messages() -> None:
    node = VirtualNode()
    client = node.client()
    taken: list[Request] = []
    node.node.accounts["$G"].subscribe_handler(b"service", taken.append)

    client.session.receive_data(b"PUB service 1\r\nx\r\n" * 5_000)

    assert client.session.in_msgs <= 1_000
    node.turn()
    assert len(taken) == 5_000


def test_replies_that_are_noted_are_more_work_than_messages() -> None:
    permissions = PermissionOptions(allow_responses=ResponsePermission(1, 10**12))
    users = (UserOptions("service", "s", permissions), UserOptions("asker", "a"))
    node = VirtualNode(Options(authorization=AuthorizationOptions(users=users)))
    service = node.client(b'{"verbose":false,"user":"service","pass":"s"}')
    asker = node.client(b'{"verbose":false,"user":"asker","pass":"a"}')
    service.send(b"SUB ask 1\r\n")

    asker.session.receive_data(b"".join(b"PUB ask _R.%d 1\r\nx\r\n" % number for number in range(2_000)))

    assert asker.session.in_msgs <= 500
    node.turn()
    assert service.session.out_msgs == 2_000


def test_a_crowd_logs_in_over_several_turns_while_others_are_served() -> None:
    node = VirtualNode()
    quiet = node.client()
    crowd = [node.client(None) for _ in range(600)]

    for client in crowd:
        client.session.receive_data(b'CONNECT {"verbose":false}\r\nPING\r\n')
    quiet.session.receive_data(b"PING\r\n")
    one_turn(node)

    assert quiet.take() == b"PONG\r\n"
    assert 100 < sum(client.session.connected for client in crowd) < 550
    node.turn()
    assert all(client.take() == b"PONG\r\n" for client in crowd)


def test_reading_pauses_while_two_reads_wait_and_goes_on_afterwards() -> None:
    node = VirtualNode()
    receiver, publisher = node.client(), node.client()
    reads = numbered(flood(node, receiver), MSGS)
    publisher.session.receive_data(reads[:-10])
    assert publisher.link.reading

    publisher.session.receive_data(reads[-10:])
    assert not publisher.link.reading

    node.turn()
    assert publisher.link.reading
    assert publisher.session.in_msgs == MSGS


def test_the_end_of_the_input_closes_after_what_is_left() -> None:
    node = VirtualNode()
    receiver, publisher = node.client(), node.client()
    publisher.session.receive_data(numbered(flood(node, receiver), MSGS))

    publisher.session.end_input()
    assert publisher.session.closed_reason == ""

    node.turn()
    assert publisher.session.closed_reason == "Client Closed"
    assert publisher.session.in_msgs == MSGS


def test_a_lost_connection_has_its_input_parsed_and_nothing_written() -> None:
    node = VirtualNode()
    receiver, publisher = node.client(), node.client()
    publisher.session.receive_data(numbered(flood(node, receiver), MSGS) + b"PING\r\n")

    publisher.session.connection_lost()
    node.turn()

    assert len(taken(receiver, sid=7)) == MSGS
    assert publisher.session.closed_reason == "Client Closed"
    assert publisher.take() == b""


def test_a_closed_session_drops_the_rest_of_its_input() -> None:
    node = VirtualNode()
    receiver, publisher = node.client(), node.client()
    publisher.session.receive_data(numbered(flood(node, receiver), MSGS))
    taken = publisher.session.in_msgs

    publisher.session.close("Server Shutdown")
    node.turn()

    assert publisher.session.in_msgs == taken


def test_a_flood_of_subscriptions_is_taken_in_shares() -> None:
    node = VirtualNode()
    client = node.client()
    client.session.receive_data(b"".join(b"SUB s.%d %d\r\n" % (sid, sid) for sid in range(10_000)))

    assert len(client.session.subscriptions) < 1_000
    node.turn()
    assert len(client.session.subscriptions) == 10_000


def test_a_message_that_a_share_cuts_is_read_whole() -> None:
    node = VirtualNode()
    receiver, publisher = node.client(), node.client()
    whole = numbered(flood(node, receiver), MSGS)
    for at in range(0, len(whole), 997):
        publisher.session.receive_data(whole[at : at + 997])
    node.turn()
    assert taken(receiver, sid=FAN - 1) == [b"%04d" % number for number in range(MSGS)]


# -- subscriptions in large numbers ------------------------------------------------------------------------------


def subscribed(node: VirtualNode, count: int) -> RawClient:
    client = node.client()
    client.send(b"".join(b"SUB s.%d %d\r\n" % (sid, sid) for sid in range(count)))
    return client


def test_a_disconnect_with_many_subscriptions_is_done_in_steps() -> None:
    node = VirtualNode()
    client, other = subscribed(node, 20_000), node.client()
    account = node.node.accounts["$G"]

    client.session.connection_lost()

    assert len(account.subs) > 19_000
    assert client.session.subscriptions == {}
    assert node.node.closed[-1].num_subscriptions == 20_000
    assert len(node.node.closed[-1].subscriptions) == 256
    other.session.receive_data(b"SUB s.1 1\r\nPUB s.19999 _INBOX.x 1\r\nx\r\nPUB s.1 1\r\ny\r\n")
    one_turn(node)
    assert other.payloads() == [b"y"]
    node.turn()
    assert len(account.subs) == 1


def test_subscriptions_that_left_are_freed_step_by_step() -> None:
    node = VirtualNode()
    account = node.node.accounts["$G"]
    client = subscribed(node, 2_000)
    subs = list(client.session.subscriptions.values())

    left = [len(subs) for _ in account.unsubscribe_steps(subs)]

    assert len(left) >= 10
    assert left == sorted(set(left), reverse=True)
    assert subs == []
    assert len(account.subs) == 0


def test_a_second_connect_ends_many_subscriptions_at_once() -> None:
    node = VirtualNode()
    client = subscribed(node, 5_000)
    client.session.receive_data(
        b'CONNECT {"verbose":false}\r\nSUB s.1 1\r\nPUB s.1 1\r\nx\r\nPUB s.2 1\r\ny\r\n'
    )
    node.turn()
    assert client.take() == b"MSG s.1 1 1\r\nx\r\n"
    assert len(node.node.accounts["$G"].subs) == 1


def test_many_subscriptions_that_are_used_up_leave_in_steps() -> None:
    node = VirtualNode()
    client, publisher = node.client(), node.client()
    client.send(b"".join(b"SUB s %d\r\nUNSUB %d 1\r\n" % (sid, sid) for sid in range(2_000)))

    publisher.session.receive_data(b"PUB s 1\r\nx\r\n")
    one_turn(node)
    assert client.session.subscriptions == {}
    client.session.receive_data(b"SUB s 7\r\n")
    publisher.send(b"PUB s 1\r\ny\r\n")

    assert re.findall(rb"MSG s (\d+) 1\r\ny", client.take()) == [b"7"]
    assert len(node.node.accounts["$G"].subs) == 1


def test_a_queue_passes_over_a_member_that_is_gone() -> None:
    node = VirtualNode()
    gone, stays = node.client(), node.client()
    gone.send(b"".join(b"SUB w q %d\r\n" % sid for sid in range(1_000)))
    stays.send(b"SUB w q 1\r\n")
    gone.session.connection_lost()
    node.client().session.receive_data(b"PUB w 1\r\nx\r\n" * 10)
    one_turn(node)
    assert stays.payloads() == [b"x"] * 10


WRITE_NS = 3_000_000  # the time of a write of compressed output


def slow_writes(node: VirtualNode, receiver: RawClient) -> None:
    """Make each write of `receiver` take time, as with compression."""
    write = receiver.link.write

    def write_slowly(data: bytes) -> None:
        node.clock.advance(WRITE_NS)
        write(data)

    receiver.link.write = write_slowly  # type: ignore[method-assign]


def test_the_partial_turns_of_all_publishers_share_the_time_of_one_turn() -> None:
    node = VirtualNode()
    receiver = node.client()
    receiver.send(b"SUB large 1\r\n")
    publishers = [node.client() for _ in range(40)]
    slow_writes(node, receiver)
    before_ns = node.clock.now_ns()

    for publisher in publishers:
        publisher.session.receive_data(b"PUB large 100000\r\n%100000d\r\n" % 7 * 3)

    assert node.clock.now_ns() - before_ns < 25_000_000
    node.turn()
    assert len(receiver.payloads()) == 3 * len(publishers)


def test_a_receiver_that_takes_nothing_does_not_cost_a_partial_turn_for_each_message() -> None:
    node = VirtualNode()
    receiver, publisher = node.client(), node.client()
    receiver.send(b"SUB slow 1\r\n")
    receiver.session.output_paused()
    publisher.send(b"PUB slow 600000\r\n%600000d\r\n" % 7)
    scheduler = node.node.scheduler
    before = scheduler.turns

    publisher.session.receive_data(b"PUB slow 4\r\n0000\r\n" * 1000)

    assert publisher.session.in_msgs == 1001
    assert scheduler.turns - before <= 2


def input_work(connect: bytes) -> int:
    """Return the work of publishing one large message with headers; its slow receivers have sent `connect`."""
    node = VirtualNode()
    publisher = node.client()
    for _ in range(8):
        receiver = node.client(connect)
        receiver.send(b"SUB large 1\r\n")
        receiver.session.output_paused()
    before = node.node.turn_state.input_left
    publisher.session.receive_data(b"HPUB large 12 1000012\r\nNATS/1.0\r\n\r\n%1000000d\r\n" % 7)
    return before - node.node.turn_state.input_left


def test_copies_without_headers_are_more_work_than_shared_bodies() -> None:
    shared = input_work(b'{"verbose":false,"headers":true}')
    copied = input_work(b'{"verbose":false,"headers":false}')
    assert copied - shared > 8 * (1_000_000 >> 6)
