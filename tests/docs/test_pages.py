"""Every page does what it says."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from tests.conformance.harness.process import REPOSITORY
from tests.docs.pages import Reader, blocks

DOCS = REPOSITORY / "docs"
# Pages that a reader works through from the first block to the last, on one server.
LESSONS = ("tutorial.md", "from-nats-server.md")
# Pages whose blocks need a server that runs already.
RECIPES = ("howto.md", "from-rabbitmq.md", "from-kafka.md")


@pytest.mark.parametrize("name", LESSONS)
def test_a_lesson_works_from_its_first_block_to_its_last(tmp_path: Path, name: str) -> None:
    with Reader(tmp_path, os.environ.get("PYJS_NATS_CLI")) as reader:
        for block in blocks(DOCS / name):
            reader.run(block)


@pytest.mark.parametrize("name", RECIPES)
def test_each_recipe_works(tmp_path: Path, name: str) -> None:
    with Reader(tmp_path, os.environ.get("PYJS_NATS_CLI")) as reader:
        reader.serve()
        for block in blocks(DOCS / name):
            reader.run(block)
