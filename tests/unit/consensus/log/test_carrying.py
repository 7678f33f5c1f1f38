"""Records of idle groups in the oldest file: how many of them a write copies."""

from __future__ import annotations

from tests.support.node_logs import CONF, content, synced
from tests.unit.consensus.log.test_node_log import Node


def test_a_write_carries_a_bounded_number_of_records() -> None:
    node = Node(file_size=1 << 20)
    for group in range(1, 11):
        node.create(group, "rest")
        for index in range(2, 200):
            node.entry(group, index, b"%d" % index)
    node.create(20, "many")
    for index in range(2, 1000):
        node.entry(20, index)
    node.create(30)
    synced(node.log)
    before, most = content(node.log), 0
    for index in range(2, 70):
        number = node.log.written
        node.entry(30, index, bytes(50_000))
        node.log.point(30, index, 1, CONF, b"")
        synced(node.log)
        most = max(most, node.log.written - number)
    assert node.log.crowding() == [20]
    assert 200 < most < 512 + 200 + 5
    node.log.point(20, 999, 1, CONF, b"")
    for index in range(70, 90):
        node.entry(30, index, bytes(50_000))
        synced(node.log)

    assert node.log.files[0] > "00000001.log"
    found = content(node.killed())
    assert all(found[group] == before[group] for group in range(1, 11))
