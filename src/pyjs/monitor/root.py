"""The page at `/`: links to all pages of the monitoring port."""

from __future__ import annotations

from pyjs import __version__

LINKS = (
    ("dashboard", "Dashboard"),
    ("varz", "General"),
    ("jsz", "JetStream"),
    ("connz", "Connections"),
    ("accountz", "Accounts"),
    ("accstatz", "Account Stats"),
    ("subsz", "Subscriptions"),
    ("routez", "Routes"),
    ("leafz", "LeafNodes"),
    ("gatewayz", "Gateways"),
    ("healthz", "Health Probe"),
    ("whyz", "Stuck Consumers"),
    ("declaredz", "Declared Assets"),
    ("metrics", "Metrics"),
)
OF_ONE_PROCESS = ("dashboard",)  # a server with workers does not serve it
GROUPS = ("raftz", "Replicated Groups")
PAGE = """<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><title>pyjs-server</title>
<style>body {{ font: 16px system-ui, sans-serif; margin: 2em }} li {{ margin: .4em }}</style></head>
<body>
<h1>pyjs-server {version}</h1>
<ul>
{items}
</ul>
</body>
</html>
"""


def root_page(base_path: str, has_groups: bool = False, has_workers: bool = False) -> bytes:
    """Return the HTML of the page, with links to paths below `base_path`; `has_groups` adds /raftz.

    With `has_workers`, pages that a server with several workers does not serve are left out.
    """
    served = [(path, text) for path, text in LINKS if not (has_workers and path in OF_ONE_PROCESS)]
    links = [*served, GROUPS] if has_groups else served
    items = "\n".join(f'<li><a href="{base_path}/{path}">{text}</a> /{path}</li>' for path, text in links)
    return PAGE.format(version=__version__, items=items).encode()
