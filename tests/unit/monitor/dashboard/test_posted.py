"""The checks of a POST to the dashboard: only a script of the page itself may send one."""

from __future__ import annotations

import pytest
from tests.unit.monitor.dashboard.conftest import Dash

TARGET = "actions/replay?acc=$G&stream=D"


@pytest.mark.parametrize(
    ("headers", "status", "text"),
    [
        ({"x_pyjs_action": ""}, 403, "the request has no header X-Pyjs-Action: replay"),
        ({"x_pyjs_action": "other"}, 403, "the request has no header X-Pyjs-Action: replay"),
        (
            {"origin": "http://evil.example"},
            403,
            "the request comes from a page of another origin: Origin is",
        ),
        (
            {"origin": "http://here"},
            403,
            'Origin is "http://here", Host is "here:8222"; a proxy must pass on',
        ),
        ({"origin": "null"}, 403, 'Origin is "null"'),
        ({"origin": "here:8222"}, 403, 'Origin is "here:8222"'),
        ({"host": ""}, 403, 'Host is ""'),
        ({"host": "", "origin": "null"}, 403, 'Host is ""'),
        ({"origin": "http://a" + "\u202e" * 10_000}, 403, "Origin is"),
        ({"sec_fetch_site": "cross-site"}, 403, 'Sec-Fetch-Site is "cross-site"'),
        ({"content_type": ""}, 415, 'Content-Type is "": send application/json'),
        ({"content_type": "text/plain"}, 415, 'Content-Type is "text/plain"'),
        ({"content_type": "application/x-www-form-urlencoded"}, 415, "send application/json"),
        ({"transfer_encoding": "chunked", "content_length": ""}, 501, "Transfer-Encoding is not supported"),
        ({"content_length": ""}, 411, "the request has no Content-Length"),
    ],
)
def test_a_request_that_is_not_from_the_page_is_refused(
    dash: Dash, headers: dict[str, str], status: int, text: str
) -> None:
    answer = dash.post(TARGET, b"{}", **headers)

    assert answer.status == status
    assert text in answer.body.decode()
    assert len(answer.body) < 2_000
    assert dict(answer.headers)["Content-Type"] == "text/plain; charset=utf-8"


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "", "sec_fetch_site": ""},  # a program, such as curl
        {"origin": "https://HERE:8222"},  # through a proxy with TLS
        {"content_type": "Application/JSON; charset=utf-8"},
    ],
)
def test_a_request_of_the_page_is_accepted(dash: Dash, headers: dict[str, str]) -> None:
    assert dash.post(TARGET, b"{}", **headers).status == 404  # there is no stream D


def test_an_empty_body_is_refused(dash: Dash) -> None:
    for body in (b"", b" \r\n"):
        answer = dash.post(TARGET, body)
        assert (answer.status, answer.body) == (400, b"the body is empty: send a JSON object\n")
