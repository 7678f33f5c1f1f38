"""/declaredz of a server in this process: what clients have changed since the file was applied."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from tests.unit.aio.support import Talk

from pyjs.base.log import ListLog
from pyjs.config.load import load_options
from pyjs.declared.asking import Ask
from pyjs.models import Declaredz
from pyjs.server.declaring import drift
from pyjs.server.declaring.requester import Requester
from pyjs.server.server import Server
from pyjs.server.system.config_file import read_file

FILE = """
streams { S { subjects: s, max_age: "1h" }, T {}, D {} }
consumers { S { c {} } }
kv { b {} }
"""


class Site:
    """A server with a monitoring port whose file declares assets."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.server: Server

    async def start(self, blocks: str) -> None:
        path = self.directory / "server.conf"
        store = f'jetstream {{ store_dir: "{self.directory}/js"\n{blocks} }}'
        path.write_text(f'listen: "127.0.0.1:-1"\nhttp: "127.0.0.1:-1"\n{store}\n', "utf-8")
        self.server = Server(load_options(str(path), read_file, {}, {}), ListLog())
        await self.server.start()

    async def api(self, endpoint: str, **request: Any) -> dict[str, Any]:
        talk = await Talk.to(self.server.client_url)
        answer = await talk.api(endpoint, **request)
        talk.writer.close()
        assert "error" not in answer, answer
        return answer

    async def page(self, target: str) -> tuple[int, bytes]:
        where = urlsplit(self.server.monitor_url or "")
        reader, writer = await asyncio.open_connection(where.hostname, where.port)
        writer.write(f"GET {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        writer.close()
        return int(head.split()[1]), body

    async def declaredz(self, query: str = "") -> dict[str, Any]:
        status, body = await self.page(f"/declaredz{query}")
        assert status == 200, body
        Declaredz.parse(body)
        found: dict[str, Any] = json.loads(body)
        return found


@pytest.fixture
async def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Site]:
    monkeypatch.setattr(drift, "FRESH_NS", 0)
    monkeypatch.setattr(drift, "REST", 0)
    made = Site(tmp_path)
    yield made
    await made.server.stop()


async def changed(site: Site) -> None:
    """Do what clients do: change, delete and add."""
    config = (await site.api("STREAM.INFO.S"))["config"]
    await site.api("STREAM.UPDATE.S", **{**config, "max_age": 600_000_000_000, "description": "mine"})
    await site.api("STREAM.DELETE.T")
    await site.api("STREAM.DELETE.D")
    await site.api("STREAM.CREATE.D", name="D", storage="memory")
    await site.api("STREAM.CREATE.X", name="X")
    await site.api("CONSUMER.CREATE.S.y", stream_name="S", config={"durable_name": "y"})


async def test_the_page_shows_what_clients_have_changed(site: Site) -> None:
    await site.start(FILE)
    before = await site.declaredz()
    assert (before["changes"], before["total"], before["assets"]) == (False, 0, [])
    assert before["counts"] == {"create": 0, "update": 0, "refuse": 0, "same": 5}

    await changed(site)

    page = await site.declaredz()
    assert page["changes"]
    assert page["counts"] == {"create": 1, "update": 1, "refuse": 1, "same": 2}
    assert [each["text"] for each in page["assets"]] == [
        '~ stream S  update description: mine -> "", max_age: 10m0s -> 1h0m0s',
        "+ stream T  create",
        "! stream D  cannot change storage: memory -> file"
        " (stream configuration update can not change storage type)",
    ]
    assert page["assets"][0]["changes"][1] == {
        "field": "max_age",
        "old": 600_000_000_000,
        "new": 3_600_000_000_000,
    }
    assert page["not_in_file"] == [{"account": "$G", "total": 2, "names": ["stream X", "consumer S > y"]}]
    rest = await site.declaredz("?all=true&offset=1&limit=2")
    assert (rest["total"], [each["name"] for each in rest["assets"]]) == (5, ["T", "D"])


async def test_the_dashboard_shows_the_same(site: Site) -> None:
    await site.start(FILE)
    await changed(site)
    status, body = await site.page("/dashboard/data/declared?search=stream")
    page = json.loads(body)
    assert status == 200
    assert [(each["name"], each["action"]) for each in page["declared"]] == [
        ("D", "refuse"),
        ("S", "update"),
        ("T", "create"),
    ]
    assert (page["of"], page["not_in_file"], page["errors"]) == (5, 2, {})


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("?acc=nobody", b'the file declares nothing for the account "nobody"'),
        ("?limit=1001", b"limit=1001: use 1 to 1000"),
        ("?limit=-1", b"limit=-1: use 1 to 1000"),
        ("?offset=x", b"offset"),
    ],
)
async def test_wrong_arguments_are_refused(site: Site, query: str, text: bytes) -> None:
    await site.start(FILE)
    status, body = await site.page(f"/declaredz{query}")
    assert (status, text in body) == (400, True), body


async def test_a_file_that_declares_nothing_has_no_comparison(site: Site) -> None:
    await site.start("")
    page = await site.declaredz()
    assert (page.get("compared"), page["changes"], page["assets"]) == (None, False, [])


async def test_pages_share_a_comparison_and_use_it_for_some_time(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Ask] = []
    ask = Requester._ask

    def counted(self: Requester, asks: list[Ask]) -> Any:
        asked.extend(asks)
        return ask(self, asks)

    await site.start("streams { S {} }")
    monkeypatch.setattr(Requester, "_ask", counted)
    monkeypatch.setattr(drift, "FRESH_NS", 3600 * 10**9)
    pages = await asyncio.gather(*(site.declaredz() for _ in range(5)))
    await site.api("STREAM.DELETE.S")
    pages.append(await site.declaredz())
    assert len(asked) == 1
    assert {page["compared"] for page in pages} == {pages[0]["compared"]}

    assert await site.server.reload() == ""

    assert (await site.declaredz())["compared"] > pages[0]["compared"]


async def test_streams_that_cannot_be_listed_are_an_error(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    await site.start("streams { S {} }")
    monkeypatch.setattr("pyjs.declared.asking.PAGE", 0)
    page = await site.declaredz()
    assert (page["errors"], page["assets"]) == ({"$G": "an answer is invalid"}, [])


async def test_a_long_value_is_cut(site: Site) -> None:
    await site.start("streams { S {} }")
    await site.api("STREAM.UPDATE.S", name="S", subjects=[f"s.{at}" for at in range(2000)])
    (asset,) = (await site.declaredz())["assets"]
    (change,) = asset["changes"]
    assert change["new"] == ["S"]
    assert isinstance(change["old"], str)
    assert len(change["old"]) == drift.VALUE_SIZE_MAX + 3
