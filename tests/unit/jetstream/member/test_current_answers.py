"""Reports about consumers are current: a leader that has been replaced does not tell of the past."""

from __future__ import annotations

import pytest
from raft.tests.conftest import is_here

if not is_here():
    pytest.skip("the consensus engine is not here (make cluster)", allow_module_level=True)

from tests.support.jetnet import JetNet


@pytest.mark.parametrize("subject", ["CONSUMER.INFO.R.C", "CONSUMER.NAMES.R", "CONSUMER.LIST.R"])
def test_a_leader_that_is_cut_off_does_not_report_consumers(net: JetNet, subject: str) -> None:
    servers = net.trio()
    client = servers[0].client()
    body: dict[str, object] = {"name": "R", "subjects": ["r"], "num_replicas": 3}
    net.answers(client, "STREAM.CREATE.R", body, wait_ms=2000)
    net.ask(client, "CONSUMER.CREATE.R.C", {"stream_name": "R", "config": {"durable_name": "C", "name": "C"}})
    assert "error" not in net.ask(client, subject)
    old = net.jet(net.ask(client, "STREAM.INFO.R")["cluster"]["leader"])
    asker = old.client()
    for other in servers:
        if other is not old:
            net.cut(old.name, other.name)
            net.cut(other.name, old.name)
    answers = net.answers(asker, subject, wait_ms=6000)
    assert [answer["error"]["err_code"] for answer in answers] == [10008]
