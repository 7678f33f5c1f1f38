"""The paths of the dashboard, their headers, and the requests that they refuse."""

from __future__ import annotations

import pytest
from tests.unit.monitor.conftest import Site
from tests.unit.monitor.dashboard.conftest import Dash

from pyjs.config.options import MonitoringOptions, Options
from pyjs.monitor.state import no_asset
from pyjs.server.monitoring.files import asset


def headers(dash: Site, target: str) -> dict[str, str]:
    return dict(dash.ask(target).headers)


@pytest.mark.parametrize(
    ("path", "name", "kind"),
    [
        ("/dashboard", "index.html", "text/html; charset=utf-8"),
        ("/dashboard/app.js", "app.js", "text/javascript; charset=utf-8"),
    ],
)
def test_the_page_and_its_files_have_a_strict_policy(dash: Dash, path: str, name: str, kind: str) -> None:
    answer, found = dash.ask(path), headers(dash, path)

    assert (answer.status, answer.body) == (200, asset(name))
    assert found["Content-Type"] == kind
    assert found["Content-Security-Policy"].startswith(
        "default-src 'none'; script-src 'self'; style-src 'self'; "
    )
    assert "unsafe" not in found["Content-Security-Policy"]
    assert found["X-Frame-Options"] == "DENY"
    assert found["X-Content-Type-Options"] == "nosniff"


def test_data_can_only_be_read_by_pages_of_this_server(dash: Dash) -> None:
    found = headers(dash, "/dashboard/data/overview")

    assert "Access-Control-Allow-Origin" not in found
    assert found["Cross-Origin-Resource-Policy"] == "same-origin"
    assert found["Cache-Control"] == "no-store"


@pytest.mark.parametrize(
    "path",
    [
        "/dashboard/nope.js",
        "/dashboard/data/nope",
        "/dashboard/data",
        "/dashboards",
        "/dashboard/data/data/overview",
    ],
)
def test_other_paths_are_not_found(dash: Dash, path: str) -> None:
    assert dash.ask(path).status == 404


def test_a_path_with_a_slash_at_its_end_leads_to_the_page(dash: Dash) -> None:
    assert ("Location", "/dashboard") in dash.ask("/dashboard/").headers


def test_a_base_path_is_before_the_paths_of_the_dashboard() -> None:
    site = Dash(Options(monitoring=MonitoringOptions(base_path="mon")))

    assert site.ask("/mon/dashboard").status == 200
    assert ("Location", "/mon/dashboard") in site.ask("/mon/dashboard/").headers
    assert site.ask("/dashboard").status == 404


def test_requests_of_the_dashboard_are_not_counted(dash: Dash) -> None:
    dash.ask("/dashboard")
    dash.ask("/dashboard/data/overview")

    assert dash.json("/varz")["http_req_stats"] == {"/varz": 1}


def test_a_wrong_argument_is_refused_with_a_reason(dash: Dash) -> None:
    assert dash.refusal("streams?limit=x").startswith("Error decoding int for 'limit'")


def test_each_view_says_which_server_it_shows(dash: Dash) -> None:
    for view in ("overview", "streams", "consumers", "connections", "cluster"):
        assert dash.view(view)["server"] == {
            "name": dash.node.server_name,
            "id": dash.node.server_id,
            "version": "0.1.0",
            "cluster": "",
            "jetstream": True,
            "messages": True,
        }


def test_a_page_without_files_is_not_found(site: Site) -> None:
    site.monitored.asset = no_asset

    assert site.ask("/dashboard").status == 404
