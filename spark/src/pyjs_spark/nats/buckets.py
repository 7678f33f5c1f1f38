"""The streams of key-value buckets and object stores: their names, and the configuration of a new bucket.

Source: ADR-8 (key-value stores), ADR-20 (object stores).
"""

from __future__ import annotations

KV_PREFIX = "KV_"
OBJECT_PREFIX = "OBJ_"


def kv_stream(bucket: str) -> str:
    """Return the name of a bucket's stream.

    For a pattern of buckets, the result is the pattern of their streams.
    """
    return KV_PREFIX + bucket


def object_stream(bucket: str) -> str:
    """Return the name of an object store's stream."""
    return OBJECT_PREFIX + bucket


def kv_config(bucket: str, **more: object) -> dict[str, object]:
    """Return the configuration of a new bucket's stream, which stores one revision of each key in files.

    `more` has further fields of the configuration, which override the default fields.
    """
    return {
        "name": kv_stream(bucket),
        "subjects": [f"$KV.{bucket}.>"],
        "max_msgs_per_subject": 1,
        "discard": "new",
        "allow_rollup_hdrs": True,
        "deny_delete": True,
        "allow_direct": True,
        "storage": "file",
        **more,
    }
