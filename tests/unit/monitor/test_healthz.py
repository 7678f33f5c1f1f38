from pathlib import Path

import pytest
from tests.unit.monitor.conftest import Site

from pyjs.config.options import Options
from pyjs.monitor import healthz

NO_ACCOUNT = '"account" must not be empty when checking stream health'
NO_STREAM = '"stream" must not be empty when checking consumer health'


@pytest.mark.parametrize("query", ["", "js-enabled=1", "js-server-only=1", "account=A&stream=B", "details=1"])
def test_a_server_without_jetstream_is_well(site: Site, query: str) -> None:
    answer = site.ask(f"/healthz?{query}")

    assert (answer.status, answer.body) == (200, b'{"status":"ok"}')


@pytest.mark.parametrize(("query", "error"), [("stream=S", NO_ACCOUNT), ("consumer=C", NO_STREAM)])
def test_a_name_without_what_holds_it_is_refused(site: Site, query: str, error: str) -> None:
    assert site.json(f"/healthz?{query}", 400) == {"status": "error", "error": error}
    assert site.json(f"/healthz?{query}&details=1", 400) == {
        "status": "error",
        "errors": [{"type": "BAD_REQUEST", "error": error}],
    }
    quoted = error.replace('"', '\\"')
    assert site.log.lines == [
        ("WRN", f'Healthcheck failed: "{quoted}"'),
        ("WRN", "Healthcheck failed: 1 errors"),
    ]


def test_a_server_that_still_starts_is_not_well(site: Site) -> None:
    site.monitored.ready = False

    assert site.json("/healthz", 500)["status"] == "error"


def test_jetstream_that_was_asked_for_and_is_not_there_is_unavailable() -> None:
    options = Options()
    options.jetstream.enabled = True
    site = Site(options)

    assert site.json("/healthz", 503) == {"status": "unavailable", "error": "JetStream not enabled"}
    assert site.json("/healthz?js-server-only=1") == {"status": "ok"}


@pytest.mark.parametrize("query", ["", "?js-meta-only=true"])
def test_a_single_server_with_a_stream_that_could_not_be_opened_is_unavailable(
    tmp_path: Path, query: str
) -> None:
    options = Options()
    options.jetstream.enabled = True
    options.jetstream.store_dir = str(tmp_path)
    stream = tmp_path / "$G" / "streams" / "A"
    stream.mkdir(parents=True)
    (stream / "meta.a").write_bytes(b"?")
    site = Site(options)
    site.node.start_jetstream()

    assert "could not be recovered" in site.json(f"/healthz{query}", 503)["error"]
    site.node.stop()


def test_a_stream_that_is_deleted_during_the_check_is_no_trouble(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(healthz, "STEP", 2)
    options = Options()
    options.jetstream.enabled = True
    options.jetstream.store_dir = str(tmp_path)
    site = Site(options)
    site.node.start_jetstream()
    client = site.client()
    for name in "ABC":
        body = b'{"name":"%s","subjects":["%s"]}' % (name.encode(), name.encode())
        client.request(f"$JS.API.STREAM.CREATE.{name}".encode(), body)

    steps = site.router.answer("/healthz")
    next(steps)
    client.request(b"$JS.API.STREAM.DELETE.C")
    for _ in steps:
        pass

    assert not any("Healthcheck failed" in text for _, text in site.log.lines)
    site.node.stop()
