"""The metrics that the official exporter creates from a JSON page: one for each number, named by the number's path.

Source: prometheus-nats-exporter, collector/collector.go. Numbers become gauges. Some of the strings become samples
with the value 1 and the string as a label. Times become milliseconds since the epoch. Lists and booleans are
left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyjs.jetstream.config.json_strict import parse_time_ns
from pyjs.monitor.own.exposition import Family, extended

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyjs.monitor.own.exposition import Page

NS_PER_MS = 1_000_000
TEXTS = frozenset(
    ("server_id", "server_name", "version", "domain", "leader", "name", "start", "config_load_time")
)
LEFT_OUT = frozenset(
    (
        "leaf",
        "trusted_operators_claim",
        "cluster_tls_timeout",
        "cluster_cluster_port",
        "cluster_auth_timeout",
        "gateway_port",
        "gateway_auth_timeout",
        "gateway_tls_timeout",
        "gateway_connect_retries",
    )
)


def flatten(page: Page, prefix: str, labels: str, fields: Mapping[str, object], path: str = "") -> None:
    """Add samples for the numbers and some strings in a JSON object; the name of each family begins with `prefix`."""
    for key, value in fields.items():
        name = f"{path}_{key}" if path else key
        name = name.replace("/", "_").strip("_")
        while "__" in name:
            name = name.replace("__", "_")
        if name in LEFT_OUT or isinstance(value, bool):
            continue
        family = Family(f"{prefix}_{name}", "gauge", name)
        if isinstance(value, (int, float)):
            page.add(family, labels, value)
        elif isinstance(value, str) and key in TEXTS:
            _add_text(page, family, labels, value)
        elif isinstance(value, dict):
            flatten(page, prefix, labels, value, name)


def _add_text(page: Page, family: Family, labels: str, text: str) -> None:
    try:
        page.add(family, labels, parse_time_ns(text) // NS_PER_MS)
    except ValueError:
        page.add(family, extended(labels, value=text), 1)
