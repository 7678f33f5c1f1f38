"""$JS.API.INFO: usage and limits of an account."""

from __future__ import annotations

from pyjs.jetstream.api.endpoint import ApiCall, Endpoint, JsonDict
from pyjs.jetstream.config.choices import FILE, MEMORY
from pyjs.jetstream.config.level import API_LEVEL


def info(call: ApiCall) -> JsonDict:
    """Return usage, limits and API counters of the account."""
    js = call.js
    limits = js.limits
    out: JsonDict = {
        "memory": js.usage[MEMORY].used,
        "storage": js.usage[FILE].used,
        "reserved_memory": js.usage[MEMORY].reserved,
        "reserved_storage": js.usage[FILE].reserved,
        "streams": len(js.streams),
        "consumers": js.num_consumers(),
        "limits": {
            "max_memory": limits.max_memory,
            "max_storage": limits.max_storage,
            "max_streams": limits.max_streams,
            "max_consumers": limits.max_consumers,
            "max_ack_pending": limits.max_ack_pending,
            "memory_max_stream_bytes": limits.mem_max_stream_bytes,
            "storage_max_stream_bytes": limits.disk_max_stream_bytes,
            "max_bytes_required": limits.max_bytes_required,
        },
    }
    if js.options.domain:
        out["domain"] = js.options.domain
    out["api"] = {"level": API_LEVEL, "total": js.api_total, "errors": js.api_errors}
    return out


ENDPOINTS = (Endpoint("INFO", info, min_args=0, max_args=0, response="account_info_response"),)
