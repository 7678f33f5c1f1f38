"""The files with which the server is run: unit, Compose file, image, workflow, and the chart of nats-io/k8s.

A test that needs a missing program is skipped, and names it; `make release-check` requires all of them.
"""

from __future__ import annotations

import configparser
import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.style.tree import ROOT

from pyjs.cli import main
from pyjs.config.flags import parse_flags

UNIT = ROOT / "deploy" / "pyjs-server.service"
COMPOSE = "github.com/compose-spec/compose-go/v2@v2.9.0"
EXPOSURE_MAX = 2.0  # of systemd's scale from 0 to 10
LINE = re.compile(r"^(\w+)=(.*)$", re.MULTILINE)


def yaml_of(name: str) -> Any:
    yaml = pytest.importorskip("yaml")
    return yaml.safe_load((ROOT / name).read_text())


def unit_values(key: str) -> list[str]:
    return [value for name, value in LINE.findall(UNIT.read_text()) if name == key]


def test_the_unit_is_valid_and_hardened(tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("systemd-analyze is not installed")
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text().replace("/opt/pyjs-server/bin/pyjs-server", "/bin/true"))

    verified = subprocess.run([analyze, "verify", unit], capture_output=True, text=True, check=False)
    rated = subprocess.run(
        [analyze, "security", "--offline=true", unit], capture_output=True, text=True, check=False
    )

    assert (verified.returncode, verified.stderr) == (0, "")
    exposure = re.search(r"Overall exposure level for \S+: ([\d.]+)", rated.stdout)
    assert exposure, rated.stdout + rated.stderr
    assert float(exposure[1]) <= EXPOSURE_MAX


def test_the_unit_starts_the_server_with_flags_that_it_has() -> None:
    (start,) = unit_values("ExecStart")

    line = parse_flags(start.split()[1:])

    assert line.flags == {"config": "/etc/pyjs-server/server.conf"}
    assert unit_values("KillSignal") == ["SIGUSR2"]
    assert configparser.RawConfigParser(strict=False, allow_no_value=True).read(UNIT) == [str(UNIT)]


def test_the_compose_file_runs_the_image_without_privileges(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (service,) = yaml_of("deploy/compose.yaml")["services"].values()
    config = tmp_path / "small.conf"
    config.write_text("debug: false")

    assert main(["-t", "-c", str(config), *service["command"]]) == 0
    assert service["cap_drop"] == ["ALL"]
    assert service["read_only"] is True
    assert all(isinstance(word, str) for word in service["command"])
    assert (ROOT / "deploy" / service["build"] / "Dockerfile").resolve() == ROOT / "Dockerfile"
    assert "is valid" in capsys.readouterr().err


def test_the_compose_file_fits_the_schema_of_compose() -> None:
    go, jsonschema = shutil.which("go"), pytest.importorskip("jsonschema")
    if go is None:
        pytest.skip("go is not installed, and brings the schema")
    fetched = subprocess.run(
        [go, "mod", "download", "-json", COMPOSE], cwd="/", capture_output=True, text=True, check=False
    )
    if fetched.returncode:
        pytest.skip(f"no Go module proxy: {fetched.stdout}")
    schema = Path(json.loads(fetched.stdout)["Dir"]) / "schema" / "compose-spec.json"

    jsonschema.Draft7Validator(json.loads(schema.read_text())).validate(yaml_of("deploy/compose.yaml"))


def test_the_image_answers_to_both_names_and_checks_its_health() -> None:
    text = (ROOT / "Dockerfile").read_text()

    assert "pyjs-server alias /usr/local/bin" in text
    assert "USER 10001:10001" in text
    assert "http://127.0.0.1:8222/healthz" in text
    assert (
        yaml_of("deploy/helm-values.yaml")["podTemplate"]["merge"]["spec"]["securityContext"]["fsGroup"]
        == 10001
    )


def test_the_image_file_has_no_findings() -> None:
    hadolint = shutil.which("hadolint")
    if hadolint is None:
        pytest.skip("hadolint is not installed")

    done = subprocess.run([hadolint, ROOT / "Dockerfile"], capture_output=True, text=True, check=False)

    assert done.stdout == ""


def test_the_workflow_of_a_release_is_valid() -> None:
    actionlint = shutil.which("actionlint")
    workflow = yaml_of(".github/workflows/release.yml")

    assert {"wheels", "raft", "sources", "publish"} == set(workflow["jobs"])
    assert workflow["permissions"] == {"contents": "read"}
    if actionlint is None:
        pytest.skip("actionlint is not installed")
    done = subprocess.run(
        [actionlint, "-shellcheck=", ROOT / ".github/workflows/release.yml"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == ""


# -- the chart -----------------------------------------------------------------------------------------------------
CHART = os.environ.get("PYJS_CHART", "")  # helm/charts/nats of a checkout of nats-io/k8s
KINDS = {
    "a single server": [],
    "a cluster": ["--set", "config.cluster.enabled=true"],
    "WebSocket clients": ["--set", "config.websocket.enabled=true"],
}


def rendered(*flags: str) -> dict[str, Any]:
    """Return the objects of the chart with our values, by their kind; of several of a kind, the first."""
    helm, yaml = shutil.which("helm"), pytest.importorskip("yaml")
    if helm is None or not CHART:
        pytest.skip("helm is not installed, or PYJS_CHART does not name the chart of nats-io/k8s")
    values = ["--values", str(ROOT / "deploy/helm-values.yaml"), "--set", "config.jetstream.enabled=true"]
    done = subprocess.run(
        [helm, "template", "nats", CHART, *values, *flags], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = {}
    for each in yaml.safe_load_all(done.stdout):
        if each:
            found.setdefault(each["kind"], each)
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_the_server_takes_what_the_chart_renders(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    objects = rendered(*KINDS[kind])
    pod = objects["StatefulSet"]["spec"]["template"]["spec"]
    container = next(each for each in pod["containers"] if each["name"] == "nats")
    config = tmp_path / "nats.conf"
    config.write_text(objects["ConfigMap"]["data"]["nats.conf"])
    monkeypatch.setenv("SERVER_NAME", "nats-0")

    assert main(["-t", "-c", str(config)]) == 0, capsys.readouterr().err
    assert parse_flags(container["args"]).flags == {"config": "/etc/nats-config/nats.conf"}
    assert container["image"] == "pyjs-server:0.1.0"
    assert pod["securityContext"]["fsGroup"] == 10001
    program, *flags = container["lifecycle"]["preStop"]["exec"]["command"]
    assert program == "nats-server"
    assert parse_flags(flags).flags == {"signal": "ldm=/var/run/nats/nats.pid"}
    probes = [container[f"{name}Probe"]["httpGet"]["path"] for name in ("startup", "readiness", "liveness")]
    assert probes == ["/healthz", "/healthz?js-server-only=true", "/healthz?js-enabled-only=true"]
