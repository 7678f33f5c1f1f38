"""API errors that name the failure."""

from __future__ import annotations

import pytest

from pyjs.base.errors import StoreFailed
from pyjs.jetstream import errcodes


@pytest.mark.parametrize(
    ("reason", "told"),
    [
        ("No space left on device", "no space left on device"),
        ("Too many open files", "too many open files"),
        ("closed", "closed"),
        ("EROFS", "EROFS"),
    ],
)
def test_no_client_is_told_where_files_are(reason: str, told: str) -> None:
    failure = StoreFailed("/var/lib/jetstream/$G/streams/S", reason)
    assert str(failure) == f"/var/lib/jetstream/$G/streams/S: {reason}"
    assert errcodes.STREAM_STORE_FAILED.error(err=failure).description == told
    assert errcodes.STREAM_CREATE.error(err=failure).description == told
