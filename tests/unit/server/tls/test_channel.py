"""A channel converts TLS records to bytes and back, and reports invalid records."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
from tests.support.certificates import COMMON, LOCAL, Authority, subject
from tests.support.key_updates import UpdatingClient

from pyjs.config.options import Options, TlsOptions
from pyjs.server.tls.channel import IDLE_MAX, TlsAbused, TlsChannel, TlsEnded
from pyjs.server.tls.context import TlsFailed, read_tls_settings


class Client:
    """The other end, without a socket."""

    def __init__(self, folder: Path, authority: Authority, version: ssl.TLSVersion | None = None) -> None:
        context = ssl.create_default_context(cafile=str(authority.ca_file))
        if version is not None:
            context.maximum_version = version
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.object = context.wrap_bio(self.incoming, self.outgoing, server_hostname="localhost")

    def shake_hands(self) -> bytes:
        """Continue the handshake; return the bytes to send."""
        try:
            self.object.do_handshake()
        except ssl.SSLWantReadError:
            pass
        return self.outgoing.read()


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    made = Authority(tmp_path)
    made.issue("server", subject(("localhost", COMMON)), *LOCAL)
    return made


def options_of(folder: Path, **others: object) -> Options:
    options = Options()
    options.tls = TlsOptions(
        cert_file=str(folder / "server.pem"), key_file=str(folder / "server-key.pem"), **others
    )
    return options


def channel_of(folder: Path, **others: object) -> TlsChannel:
    settings = read_tls_settings(options_of(folder, **others))
    assert settings is not None
    return TlsChannel(settings.context)


def step(channel: TlsChannel, client: Client) -> None:
    """Run one step of the handshake on each side."""
    channel.feed(client.shake_hands())
    channel.continue_handshake()
    client.incoming.write(channel.take_output())


def connected(folder: Path, authority: Authority) -> tuple[TlsChannel, Client]:
    settings = read_tls_settings(options_of(folder))
    assert settings is not None
    channel, client = TlsChannel(settings.context), Client(folder, authority)
    while not channel.handshake_done:
        step(channel, client)
    return channel, client


def test_the_rest_of_a_handshake_is_short_after_the_answer_of_the_server(
    tmp_path: Path, authority: Authority
) -> None:
    channel, client = channel_of(tmp_path), Client(tmp_path, authority)
    seen = [channel.is_short]
    # when
    step(channel, client)
    seen.append(channel.is_short)
    step(channel, client)
    # then
    assert seen == [False, True]
    assert channel.handshake_done


def test_the_rest_is_not_short_if_the_server_asks_for_another_key_exchange(
    tmp_path: Path, authority: Authority
) -> None:
    channel, client = channel_of(tmp_path, curve="CurveP256"), Client(tmp_path, authority)
    seen = []
    # when
    while not channel.handshake_done:
        seen.append(channel.is_short)
        step(channel, client)
    # then
    assert seen == [False, False, True]


@pytest.mark.parametrize(
    "change", [{"verify": True, "ca_file": "ca.pem"}, {"version": ssl.TLSVersion.TLSv1_2}]
)
def test_the_rest_is_not_short_with_certificates_of_clients_and_before_tls_1_3(
    change: dict[str, object], tmp_path: Path, authority: Authority
) -> None:
    client = Client(tmp_path, authority, version=change.pop("version", None))
    if "ca_file" in change:
        change["ca_file"] = str(authority.ca_file)
    channel = channel_of(tmp_path, **change)
    # when
    step(channel, client)
    # then
    assert not channel.is_short


def test_only_tickets_are_left_after_a_handshake_of_tls_1_3(tmp_path: Path, authority: Authority) -> None:
    channel, client = channel_of(tmp_path), Client(tmp_path, authority)
    step(channel, client)
    channel.feed(client.shake_hands())
    # when
    channel.continue_handshake()
    client.incoming.write(channel.seal(b"PONG"))
    # then
    assert channel.has_tickets_only
    assert client.object.read() == b"PONG"


def test_the_output_of_tls_1_2_is_needed_by_the_client(tmp_path: Path, authority: Authority) -> None:
    channel, client = channel_of(tmp_path), Client(tmp_path, authority, version=ssl.TLSVersion.TLSv1_2)
    while not channel.handshake_done:
        step(channel, client)
    assert not channel.has_tickets_only


@pytest.mark.parametrize("known", ["ca_file", "default"])
def test_the_chain_is_that_of_the_file_whatever_authorities_are_known(
    known: str, tmp_path: Path, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.ca_file))
    settings = read_tls_settings(
        options_of(tmp_path, ca_file=str(authority.ca_file) if known == "ca_file" else "")
    )
    assert settings is not None
    channel, client = TlsChannel(settings.context), Client(tmp_path, authority)
    # when
    while not channel.handshake_done:
        step(channel, client)
    # then
    assert len(client.object._sslobj.get_unverified_chain()) == 1
    assert settings.context.num_tickets == 1


def test_bytes_come_out_as_they_went_in(tmp_path: Path, authority: Authority) -> None:
    channel, client = connected(tmp_path, authority)
    body = bytes(range(256)) * 400
    # when
    client.object.write(body)
    records = client.outgoing.read()
    channel.feed(records)
    client.incoming.write(channel.seal(body))
    # then
    assert channel.unseal() == body
    assert b"".join(iter(lambda: client.object.read(70_000) if client.incoming.pending else b"", b"")) == body


def test_half_a_record_waits_for_the_rest(tmp_path: Path, authority: Authority) -> None:
    channel, client = connected(tmp_path, authority)
    client.object.write(b"PING\r\n")
    records = client.outgoing.read()
    # when
    channel.feed(records[:7])
    first = channel.unseal()
    channel.feed(records[7:])
    # then
    assert first == b""
    assert channel.unseal() == b"PING\r\n"


def test_a_farewell_is_told_behind_what_came_before_it(tmp_path: Path, authority: Authority) -> None:
    channel, client = connected(tmp_path, authority)
    client.object.write(b"PING\r\n")
    with pytest.raises(ssl.SSLWantReadError):
        client.object.unwrap()
    channel.feed(client.outgoing.read())
    # then
    assert channel.unseal() == b"PING\r\n"
    with pytest.raises(TlsEnded):
        channel.unseal()


def test_a_record_that_was_changed_is_refused(tmp_path: Path, authority: Authority) -> None:
    channel, client = connected(tmp_path, authority)
    client.object.write(b"PING\r\n")
    records = bytearray(client.outgoing.read())
    records[-1] ^= 1
    channel.feed(bytes(records))
    # then
    with pytest.raises(ssl.SSLError):
        channel.unseal()


def test_bytes_that_are_not_tls_records_are_refused(tmp_path: Path, authority: Authority) -> None:
    settings = read_tls_settings(options_of(tmp_path))
    assert settings is not None
    channel = TlsChannel(settings.context)
    channel.feed(b"\x16\x03\x01\x00\x05hello")
    with pytest.raises(ssl.SSLError):
        channel.continue_handshake()


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        (
            {"cert_file": "/nowhere/a.pem"},
            "open /nowhere/a.pem: no such file or directory; give a file that the server can read",
        ),
        ({"key_file": "ca-key.pem"}, "is not that of the certificate"),
        ({"cert_file": "server-key.pem"}, "are no PEM files of a certificate and its key"),
        ({"ca_file": "server-key.pem"}, "holds no certificate in PEM form"),
        ({"ca_file": "/nowhere/ca.pem"}, "open /nowhere/ca.pem: no such file or directory"),
    ],
)
def test_files_that_cannot_be_used_are_named(
    change: dict[str, str], cause: str, tmp_path: Path, authority: Authority
) -> None:
    options = options_of(tmp_path)
    options.tls.place = "server.conf:1:5"
    for name, value in change.items():
        setattr(options.tls, name, value if value.startswith("/") else str(tmp_path / value))
    with pytest.raises(TlsFailed) as caught:
        read_tls_settings(options)
    assert str(caught.value).startswith("server.conf:1:5: ")
    assert cause in str(caught.value)


def test_without_a_certificate_nothing_is_encrypted() -> None:
    assert read_tls_settings(Options()) is None


def updating(tmp_path: Path, authority: Authority) -> tuple[TlsChannel, UpdatingClient]:
    """Return a channel and its client after the handshake."""
    channel, client = channel_of(tmp_path), UpdatingClient(authority.ca_file, tmp_path / "keys")
    while not channel.handshake_done:
        client.step()
        channel.feed(client.outgoing.read())
        channel.continue_handshake()
        client.incoming.write(channel.take_output())
    return channel, client


def test_a_few_new_keys_are_taken(tmp_path: Path, authority: Authority) -> None:
    channel, client = updating(tmp_path, authority)
    channel.feed(client.key_updates(10))
    assert channel.unseal() == b""


def take_all(channel: TlsChannel, records: bytes, size: int) -> int:
    """Feed records in portions; return the number of plain bytes."""
    got = 0
    for start in range(0, len(records), size):
        channel.feed(records[start : start + size])
        got += len(channel.unseal())
    return got


@pytest.mark.parametrize("size", [4096, 1 << 20])
def test_new_keys_without_end_end_the_stream(tmp_path: Path, authority: Authority, size: int) -> None:
    channel, client = updating(tmp_path, authority)
    records = client.key_updates(2 * IDLE_MAX // 27)
    with pytest.raises(TlsAbused, match="records without data"):
        take_all(channel, records, size)


def test_new_keys_that_come_with_the_end_of_the_handshake_count(tmp_path: Path, authority: Authority) -> None:
    channel, client = channel_of(tmp_path), UpdatingClient(authority.ca_file, tmp_path / "keys")
    while not client.step():
        channel.feed(client.outgoing.read())
        channel.continue_handshake()
        client.incoming.write(channel.take_output())
    channel.feed(client.outgoing.read() + client.key_updates(2 * IDLE_MAX // 27))
    channel.continue_handshake()
    with pytest.raises(TlsAbused):
        channel.unseal()


@pytest.mark.parametrize("size", [1, 6, 100, 16_384])
def test_records_with_little_data_do_not_end_the_stream(
    tmp_path: Path, authority: Authority, size: int
) -> None:
    channel, client = updating(tmp_path, authority)
    for _ in range(3_000):
        client.object.write(b"x" * size)
    assert take_all(channel, client.outgoing.read(), 65_536) == 3_000 * size
