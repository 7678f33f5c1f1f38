"""The manual as a site: no warning, no dead link, and a search that finds what users ask for."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.conformance.harness.process import REPOSITORY

NODE = shutil.which("node")
BEST = 3
# What a new user types, and the page that has the answer.
QUESTIONS = {
    "consumer gets no messages": "docs/why",
    "password of a user": "docs/security",
    "publish exactly once": "docs/howto",
    "power cut": "docs/durability",
    "backup restore": "docs/backup",
    "prometheus metrics": "docs/operations",
    "pytest fixture": "docs/embedding",
    "three servers": "docs/cluster",
    "rabbitmq exchange": "docs/from-rabbitmq",
    "kafka partition": "docs/from-kafka",
    "import nats-server streams": "docs/backup",
    "work queue": "docs/howto",
    "spark dataframe": "spark/docs/first-dataframe",
    "damaged file repair": "docs/operations",
    "dead letters": "docs/dead-letters",
    "max_deliver message lost": "docs/dead-letters",
    "replay dead letters": "docs/dead-letters",
    "create streams from configuration": "docs/declared-assets",
    "pyjs-server plan": "docs/declared-assets",
    "server does not start": "docs/troubleshooting",
    "bind: address already in use": "docs/troubleshooting",
    "several processes one port": "docs/workers",
    "workers": "docs/workers",
    "newer version offline stream": "docs/storage-format",
    "spark archive": "spark/docs/pipelines",
    "spark-submit": "spark/docs/deploy",
}

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("sphinx") is None, reason="Sphinx is not here: pip install '.[docs]'"
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site, with every warning an error: an unknown page or heading in a link is one."""
    directory = tmp_path_factory.mktemp("site")
    words = ["-m", "sphinx", "-q", "-W", "--keep-going", "-c", "docs/site", ".", str(directory)]
    done = subprocess.run(
        [sys.executable, *words], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    return directory


def test_every_page_is_in_it(site: Path) -> None:
    found = [*(REPOSITORY / "docs").glob("*.md"), *(REPOSITORY / "spark/docs").rglob("*.md")]
    pages = {path.relative_to(REPOSITORY).with_suffix(".html") for path in found}

    assert len(pages) > 40
    assert [page for page in sorted(pages) if not (site / page).is_file()] == []
    assert (site / "index.html").is_file()


@pytest.mark.skipif(
    NODE is None and "node" not in os.environ.get("PYJS_REQUIRE", ""), reason="node is not here"
)
def test_the_search_finds_what_a_new_user_asks_for(site: Path) -> None:
    script = Path(__file__).with_name("search.js")
    said = subprocess.run(
        [str(NODE), str(script), str(site)],
        input="\n".join(QUESTIONS),
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    found = dict(zip(QUESTIONS, json.loads(said), strict=True))

    missed = {ask: found[ask][:BEST] for ask, page in QUESTIONS.items() if page not in found[ask][:BEST]}
    assert missed == {}
