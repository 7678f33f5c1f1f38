import re

import pytest
from tests.unit.monitor.conftest import Site

from pyjs.config.options import MonitoringOptions, Options


@pytest.mark.parametrize("path", ["/varz/", "/nope", "/index.html", "/expvarz"])
def test_an_unknown_path_is_not_found(site: Site, path: str) -> None:
    answer = site.ask(path)

    assert (answer.status, answer.body) == (404, b"404 page not found\n")
    assert ("X-Content-Type-Options", "nosniff") in answer.headers


def test_answers_are_json_that_any_page_may_read(site: Site) -> None:
    assert dict(site.ask("/varz").headers) == {
        "Content-Type": "application/json",
        "Access-Control-Allow-Origin": "*",
    }


@pytest.mark.parametrize(
    ("target", "location"),
    [
        ("//varz", "/varz"),
        ("//varz?x=1", "/varz?x=1"),
        ("/./varz", "/varz"),
        ("/a/../varz", "/varz"),
        ("//evil.com/%0d%0aX", "/evil.com/%0d%0aX"),
        ("/\\evil.com//", "/%5Cevil.com/"),
        ('//a"<b>&c/', "/a%22%3Cb%3E&c/"),
        ("//\u00c3\u00a9", "/%C3%A9"),
    ],
)
def test_a_path_that_is_not_clean_is_redirected_to_this_host(site: Site, target: str, location: str) -> None:
    answer = site.ask(target)  # all but the last were seen on nats-server 2.15.1, which escapes this way

    assert answer.status == 307
    assert ("Location", location) in answer.headers
    assert answer.body == f'<a href="{location.replace("&", "&amp;")}">Temporary Redirect</a>.\n\n'.encode()


def test_requests_are_counted_by_path(site: Site) -> None:
    for path in (
        "/",
        "/varz",
        "/connz",
        "/connz?sort=zz",
        "/subscriptionsz",
        "/subsz",
        "/nope",
        "/ipqueuesz",
    ):
        site.ask(path)

    assert site.json("/varz")["http_req_stats"] == {"/": 1, "/connz": 2, "/subsz": 2, "/varz": 2}


@pytest.mark.parametrize("base", ["mon", "/mon", "/mon/"])
def test_a_base_path_is_before_every_path(base: str) -> None:
    site = Site(Options(monitoring=MonitoringOptions(base_path=base)))

    assert site.ask("/mon/varz").status == 200
    assert site.ask("/mon").status == 200
    assert b'href="/mon/varz"' in site.ask("/mon/").body
    assert site.ask("/varz").status == 404
    assert site.ask("/monitor/varz").status == 404


def test_the_root_page_links_to_what_there_is(site: Site) -> None:
    page = site.ask("/")

    assert dict(page.headers)["Content-Type"] == "text/html; charset=utf-8"
    for path in ("varz", "connz", "jsz", "healthz", "subsz", "accountz"):
        assert f'href="/{path}"'.encode() in page.body


def test_a_server_alone_has_no_routes_gateways_and_leafnodes(site: Site) -> None:
    assert site.json("/routez?subs=detail")["routes"] == []
    assert list(site.json("/routez")) == ["server_id", "server_name", "now", "num_routes", "routes"]
    assert site.json("/gatewayz")["outbound_gateways"] == {}
    assert site.json("/leafz")["leafs"] == []
    assert site.json("/ipqueuesz") == {}
    assert site.ask("/raftz").body == b"No Raft nodes registered"
    assert site.ask("/raftz").status == 404


@pytest.mark.parametrize("path", ["/debug/vars", "/stacksz"])
def test_what_only_go_has_is_said_to_be_missing(site: Site, path: str) -> None:
    assert (site.ask(path).status, site.ask(path).body) == (404, b"not supported yet")


@pytest.mark.parametrize(
    "target", ["/routez?subs=zz", "/gatewayz?accs=zz", "/leafz?subs=zz", "/accstatz?unused=zz"]
)
def test_a_wrong_boolean_is_refused_everywhere(site: Site, target: str) -> None:
    assert site.refused(target).startswith("Error decoding boolean for '")


def test_accounts_are_listed_and_shown(two_accounts: Site) -> None:
    site = two_accounts
    site.client(user="a").send(b"SUB foo 1\r\nPUB foo 2\r\nhi\r\n")

    assert site.json("/accountz")["accounts"] == ["$G", "$SYS", "A", "B"]
    detail = site.json("/accountz?acc=A")["account_detail"]
    assert (detail["account_name"], detail["client_connections"], detail["subscriptions"]) == ("A", 1, 1)
    assert site.json("/accountz?acc=$SYS")["account_detail"]["is_system"] is True
    assert site.refused("/accountz?acc=nope") == "Account nope does not exist"
    (used,) = site.json("/accstatz")["account_statz"]
    assert (used["acc"], used["conns"], used["sent"]["msgs"], used["received"]["bytes"]) == ("A", 1, 1, 2)
    assert len(site.json("/accstatz?unused=1")["account_statz"]) == 4


def test_each_page_that_the_root_links_to_answers() -> None:
    site = Site(Options())
    links = re.findall(r'href="([^"]+)"', site.ask("/").body.decode())
    assert len(links) > 5
    assert {link: site.ask(link).status for link in links} == dict.fromkeys(links, 200)
