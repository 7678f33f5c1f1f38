"""More published security advisories of nats-server: subjects, imports, headers and pages.

Each scene runs on both servers, as in test_advisories.py. Attacks before the login: test_advisories_doors.py.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.harness.both import needs_peer, of_both
from tests.conformance.harness.process import ServerFailed, ServerProcess, our_command, peer_command
from tests.conformance.harness.websocket import WebSocketServer
from tests.conformance.test_advisories import client, told
from tests.support.raw import RawClient

pytestmark = needs_peer
JETSTREAM = 'jetstream { store_dir: "<<store>>" }'


def circle(kind: str, subject: str, *accounts: str) -> str:
    """Return accounts of which each imports from the next one."""
    blocks = [
        f"{name} {{ users: [{{user: {name.lower()}, password: a}}], exports: [{{{kind}: '{subject}'}}], "
        f"imports: [{{{kind}: {{account: {source}, subject: '{subject}'}}}}] }}"
        for name, source in zip(accounts, (*accounts[1:], accounts[0]), strict=True)
    ]
    return "accounts { " + "\n".join(blocks) + " }"


CYCLES = {
    "two accounts": circle("service", "help", "A", "B"),
    "three accounts": circle("service", "h", "A", "B", "C"),
    "streams": circle("stream", "h", "A", "B"),
    "wildcards": circle("service", "x.>", "A", "B"),
}


def starts(directory: Path, command: list[str] | None, config: str) -> str:
    """Return "serves", or "refuses" if the server refuses the configuration because of its cycle."""
    assert command is not None
    directory.mkdir()
    server = ServerProcess(command, config, directory, with_http=False)
    try:
        server.start()
        sender = client(server, "a")
        sender.send(b"SUB back 8\r\nPUB help back 1\r\nx\r\nPUB h back 1\r\nx\r\nPUB x.y back 1\r\nx\r\n")
        sender.fence()
        return "serves"
    except ServerFailed as failed:
        return "refuses" if "cycle" in str(failed) else str(failed)
    finally:
        server.kill()


@pytest.mark.parametrize("config", CYCLES.values(), ids=CYCLES)
def test_accounts_that_import_in_a_circle_ended_the_server(tmp_path: Path, config: str) -> None:
    """CVE-2020-28466, CVE-2022-42709."""
    peer = starts(tmp_path / "peer", peer_command(), config)
    assert starts(tmp_path / "ours", our_command(), config) == peer


def test_an_export_for_one_account_was_imported_by_another(tmp_path: Path) -> None:
    """CVE-2021-3127; activation tokens: test_jwt_exchange.py."""
    config = """accounts {
        S { users: [{user: s, password: a}], exports: [
            {service: help, accounts: [A]}, {stream: news, accounts: [A]}
        ] }
        A { users: [{user: a, password: a}] }
        B { users: [{user: b, password: a}], imports: [{KIND: {account: S, subject: NAME}}] }
    }"""
    for number, (kind, name) in enumerate((("service", "help"), ("stream", "news"))):
        text = config.replace("KIND", kind).replace("NAME", name)
        for command in (peer_command(), our_command()):
            assert command is not None
            folder = tmp_path / f"{number}{len(command)}"
            folder.mkdir()
            server = ServerProcess(command, text, folder, with_http=False)
            with pytest.raises(ServerFailed, match=r"not authorized|import"):
                server.start()


@pytest.mark.parametrize("replicas", [-1, 2, 6, 1 << 31, 1 << 62])
def test_a_number_of_replicas_ended_the_server(tmp_path: Path, replicas: int) -> None:  # CVE-2022-42708
    def look(server: ServerProcess) -> Any:
        asker = RawClient(server.port)
        answer = asker.try_api("STREAM.CREATE.S", name="S", subjects=["s"], num_replicas=replicas)
        return "error" in answer, bool(RawClient(server.port).api("INFO"))

    peer, ours = of_both(tmp_path, JETSTREAM, look)
    assert ours == peer == (True, True)


OVERLAPS = ("a.*.c", "a.>", "*.b.c", "*.*.c", "*.b.*", ">", "a.b.>")


@pytest.mark.parametrize("deny", ["a.b.*", "*.b.c", "a.*.c"])
@pytest.mark.parametrize("queue", [b"", b" q"])
def test_a_wildcard_that_overlaps_a_deny_entry_brought_its_messages(
    tmp_path: Path, deny: str, queue: bytes
) -> None:  # GHSA-wh7g-5m82-pmhr
    config = (
        "authorization { users: [{user: a, password: a}, "
        f'{{user: l, password: a, permissions: {{subscribe: {{deny: "{deny}"}}}}}}] }}'
    )

    def look(server: ServerProcess) -> Any:
        reader, sender = client(server, "l"), client(server, "a", b"_INBOX.sender")
        for number, subject in enumerate(OVERLAPS):
            reader.send(
                b"SUB %b%b %d\r\n" % (subject.encode(), queue + b"%d" % number if queue else b"", number + 10)
            )
        reader.send(b"PING\r\n")
        refusals = reader.read_until(b"PONG\r\n")
        sender.send(b"PUB a.b.c 0\r\n\r\nPUB a.b.d 0\r\n\r\nPUB a.x.c 0\r\n\r\nPUB x.b.c 0\r\n\r\n")
        sender.fence()
        got = sorted(line for line in told(reader, b"") if line.startswith(b"MSG"))
        return refusals.count(b"-ERR"), got

    peer, ours = of_both(tmp_path, config, look)
    assert ours == peer
    assert not any(b" a.b.c " in line for line in ours[1])


HEADER = b'{"acc":"ADMIN","rtt":1}'
FORGED = {
    "as it is": b"Nats-Request-Info: %b\r\n" % HEADER,
    "in lower case": b"nats-request-info: %b\r\n" % HEADER,
    "twice": b"Nats-Request-Info: %b\r\nNats-Request-Info: %b\r\n" % (HEADER, HEADER),
    "after another": b"A: b\r\nNats-Request-Info: %b\r\n" % HEADER,
    "before another": b"Nats-Request-Info: %b\r\nA: b\r\n" % HEADER,
    "without a space": b"Nats-Request-Info:%b\r\n" % HEADER,
    "in the value of another": b"A: Nats-Request-Info: %b\r\n" % HEADER,
}


@pytest.mark.parametrize("share", ["true", "false"])
@pytest.mark.parametrize("block", FORGED.values(), ids=FORGED)
def test_a_client_told_a_service_that_it_is_somebody_else(
    tmp_path: Path, share: str, block: bytes
) -> None:  # CVE-2026-33223
    config = f"""accounts {{
        S {{ users: [{{user: s, password: a}}], exports: [{{service: help}}] }}
        A {{ users: [{{user: a, password: a}}], imports: [
            {{service: {{account: S, subject: help}}, share: {share}}}
        ] }}
    }}"""

    def look(server: ServerProcess) -> Any:
        service, asker = client(server, "s", b"_INBOX.s"), client(server, "a")
        service.send(b"SUB help 5\r\n")
        service.fence()
        head = b"NATS/1.0\r\n" + block + b"\r\n"
        asker.send(b"HPUB help _INBOX.raw.x %d %d\r\n%b\r\n" % (len(head), len(head), head))
        headers = next(service.frames())[2]
        fields = [line for line in headers.split(b"\r\n") if line]
        return [re.sub(rb'^(Nats-Request-Info:).*("acc":"A").*', rb"\1 \2", line) for line in fields]

    peer, ours = of_both(tmp_path, config, look)
    assert ours == peer
    if share == "true":
        true = [line for line in ours if line.startswith(b"Nats-Request-Info:")]
        assert len(true) == 1
        assert b'"A"' in true[0]


def test_passwords_of_the_command_line_were_shown_on_pages(tmp_path: Path) -> None:  # CVE-2026-33247
    for command in (peer_command(), our_command()):
        assert command is not None
        folder = tmp_path / str(len(command))
        folder.mkdir()
        server = WebSocketServer([*command, "--user", "someone", "--pass", "t0psecret"], "", folder)
        server.start()
        try:
            for path in ("/varz", "/connz?auth=1", "/debug/vars", "/", "/accountz?acc=$G"):
                try:
                    text = json.dumps(server.page(path))
                except (OSError, ValueError):  # there is no such page, or it is not JSON
                    continue
                assert "t0psecret" not in text, path
            assert "t0psecret" not in (folder / "log").read_text()
        finally:
            server.kill()


PAGES = [
    {"offset": (1 << 63) - 1, "limit": (1 << 63) - 1},
    {"offset": (1 << 63) - 1, "limit": 1},
    {"offset": 1, "limit": (1 << 63) - 1},
    {"offset": -1, "limit": -1},
    {"offset": -(1 << 63), "limit": -(1 << 63)},
    {"offset": 1 << 64, "limit": 1},
]


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_a_page_of_connections_ended_the_server(tmp_path: Path, page: dict[str, int]) -> None:
    """GHSA-q59r-vq66-pxc2."""

    def look(server: ServerProcess) -> Any:
        asker = RawClient(server.port)
        for subject in (b"$SYS.REQ.ACCOUNT.PING.CONNZ", b"$SYS.REQ.ACCOUNT.$G.CONNZ"):
            asker.request(subject, json.dumps(page).encode())
        fresh = RawClient(server.port)
        found: dict[str, Any] = json.loads(fresh.request(b"$SYS.REQ.ACCOUNT.PING.CONNZ") or b"{}")
        return found.get("data", {}).get("num_connections")

    peer, ours = of_both(tmp_path, "", look)
    assert ours == peer
