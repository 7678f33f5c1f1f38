"""A network of servers with JetStream."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.support.jetnet import JetNet


@pytest.fixture
def net(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[JetNet]:
    from tests.support.jetnet import LOG_FILE_SIZE, JetNet

    from pyjs.jetstream.member.member_node import MemberNode

    monkeypatch.setattr(MemberNode, "log_file_size", LOG_FILE_SIZE)
    net = JetNet(tmp_path)
    yield net
    net.stop()
