"""`pyjs-server doctor [-c FILE] [--json]` prints a line for each check; it exits with 1 if a check failed."""

from __future__ import annotations

from typing import TYPE_CHECKING, TextIO

import orjson

from pyjs.server.doctor.disk import check_store
from pyjs.server.doctor.files import check_files
from pyjs.server.doctor.findings import Level, fail, ok
from pyjs.server.doctor.machine import check_machine
from pyjs.server.doctor.network import check_network
from pyjs.server.doctor.outputs import check_outputs
from pyjs.server.system.resources import effective_options

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyjs.config.options import Options
    from pyjs.server.doctor.findings import Finding


def run(options: Options, missing: list[str], texts: Mapping[str, str], out: TextIO, *, as_json: bool) -> int:
    """Print the findings and return the exit code: 1 if a check failed, otherwise 0.

    `missing` lists the required packages that are not installed. `texts` maps the path of each configuration file
    to its text.
    """
    findings = []
    for finding in check(effective_options(options), missing, texts):
        findings.append(finding)
        if not as_json:
            print(finding, file=out, flush=True)
    failed = sum(each.level is Level.FAIL for each in findings)
    warned = sum(each.level is Level.WARN for each in findings)
    if as_json:
        text = orjson.dumps([each.as_json() for each in findings], option=orjson.OPT_INDENT_2)
        print(text.decode(), file=out)
    else:
        print(f"\n{len(findings)} checks: {failed} failed, {warned} warnings", file=out)
    return 1 if failed else 0


def check(options: Options, missing: list[str], texts: Mapping[str, str]) -> Iterator[Finding]:
    """Run all checks and yield their findings.

    `options` are the effective options. `missing` lists the required packages that are not installed. `texts` maps
    the path of each configuration file to its text.
    """
    if missing:
        yield fail("packages", f"not installed: {' '.join(missing)}", f"pip install {' '.join(missing)}")
    else:
        yield ok("packages", "all that the server needs")
    yield from check_machine(options)
    yield from check_files(options, texts)
    yield from check_outputs(options)
    yield from check_network(options)
    if options.jetstream.enabled:
        yield from check_store(options)
