"""The checks of a POST request to the dashboard: only a script of the page itself may send one.

A browser adds the credentials of the monitoring port even to requests that pages of other origins cause. But such a
request can have JSON as its body, or a header of its own, only if the server permits this in answer to a preflight
request, which this server never does. The headers Origin and Sec-Fetch-Site, which no page can set, are checked too.

Source: the Fetch standard, "CORS-preflight fetch" and "Origin header"; Fetch Metadata Request Headers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pyjs.base.gotext import quoted

if TYPE_CHECKING:
    from collections.abc import Mapping

ACTION_HEADER = "x-pyjs-action"
JSON = "application/json"
# The headers that a Posted has, if the request has them; names in lower case.
KEPT_HEADERS = (
    "host",
    "origin",
    "sec-fetch-site",
    "content-type",
    "content-length",
    "transfer-encoding",
    ACTION_HEADER,
)
SHOWN_MAX = 100  # characters of a header in a text


class Posted(NamedTuple):
    """A POST request: the headers of KEPT_HEADERS, the body, and the address of the sender."""

    headers: Mapping[str, str]
    body: bytes
    peer: str  # host and port


class ActionRefused(Exception):
    """Raised when an action is refused; the message of the exception is the text of the answer."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


def check_posted(posted: Posted, action: str) -> None:
    """Check that a script of the page has sent a request for `action`, with a body of JSON.

    Raises:
        ActionRefused: the request comes from elsewhere, or its headers or its body are not as required.
    """
    headers = posted.headers
    if headers.get(ACTION_HEADER) != action:
        raise ActionRefused(403, f"the request has no header X-Pyjs-Action: {action}")
    _check_origin(headers)
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != JSON:
        raise ActionRefused(415, f"Content-Type is {_shown(kind)}: send {JSON}")
    if "transfer-encoding" in headers:
        raise ActionRefused(501, "Transfer-Encoding is not supported: send the body with Content-Length")
    if "content-length" not in headers:
        raise ActionRefused(411, "the request has no Content-Length")
    if not posted.body.strip():
        raise ActionRefused(400, "the body is empty: send a JSON object")


def _check_origin(headers: Mapping[str, str]) -> None:
    origin, host = headers.get("origin"), headers.get("host", "")
    if origin is not None and (not host or origin.partition("://")[2].lower() != host.lower()):
        raise ActionRefused(
            403,
            f"the request comes from a page of another origin: Origin is {_shown(origin)}, Host is {_shown(host)};"
            " a proxy must pass on the header Host",
        )
    site = headers.get("sec-fetch-site", "same-origin")
    if site != "same-origin":
        raise ActionRefused(403, f"the request comes from elsewhere: Sec-Fetch-Site is {_shown(site)}")


def _shown(value: str) -> str:
    return quoted(value[:SHOWN_MAX])
