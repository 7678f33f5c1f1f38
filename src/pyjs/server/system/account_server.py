"""Requests to an account server over HTTP; called in a thread.

Source: texts of nats-server 2.15.1, tests/conformance/test_jwt_url.py.
"""

from __future__ import annotations

import http.client
import urllib.error
import urllib.request

from pyjs.claims.token import TOKEN_SIZE_MAX
from pyjs.core.trust.resolvers import ResolverFault

NS_PER_S = 1_000_000_000


def get(url: str, timeout_ns: int) -> str:
    """Fetch the token at `url`, blocking for up to `timeout_ns` in each network operation.

    Raises:
        ResolverFault: the request failed, or the answer is not ASCII text.
    """
    try:
        with urllib.request.urlopen(url, timeout=timeout_ns / NS_PER_S) as answer:
            body: bytes = answer.read(TOKEN_SIZE_MAX + 1)
        return body.decode("ascii").strip()
    except urllib.error.HTTPError as error:
        raise ResolverFault(f'could not fetch <"{url}">: {error.code} {error.reason}') from None
    except urllib.error.URLError as error:
        raise ResolverFault(f'could not fetch <"{url}">: {error.reason}') from None
    except (OSError, http.client.HTTPException, UnicodeDecodeError) as error:
        raise ResolverFault(f'could not fetch <"{url}">: {error}') from None
