"""Hostile configurations: each is refused quickly with a clear error."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from pyjs.config.errors import ConfigError
from pyjs.config.load import load_options
from pyjs.server.system.config_file import CONFIG_SIZE_MAX, read_file

FAST_S = 10.0  # seconds; so long that only a text that takes forever fails, not a slow machine


def refusal(path: str | Path, environ: dict[str, str] | None = None) -> str:
    """Return why a file is refused, and check that the refusal is quick."""
    began = time.process_time()
    with pytest.raises(ConfigError) as caught:
        load_options(str(path), read_file, environ or {}, {})
    assert time.process_time() - began < FAST_S
    return str(caught.value)


def written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_includes_two_thousand_levels_deep(tmp_path: Path) -> None:
    for level in range(2000):
        written(tmp_path / f"{level}.conf", f"include '{level + 1}.conf'\n")
    assert f"{tmp_path}/100.conf:1:1: include" in refusal(tmp_path / "0.conf")
    assert "more than 100 levels deep" in refusal(tmp_path / "0.conf")


def test_includes_in_blocks_two_thousand_levels_deep(tmp_path: Path) -> None:
    for level in range(2000):
        written(tmp_path / f"{level}.conf", f"a {{ b {{ include '{level + 1}.conf' }} }}\n")
    assert "nested more than 100 deep" in refusal(tmp_path / "0.conf")


def test_includes_that_double_at_every_level(tmp_path: Path) -> None:
    for level in range(30):
        written(tmp_path / f"{level}.conf", f"include '{level + 1}.conf'\n" * 2)
    written(tmp_path / "30.conf", "")
    assert "more than 1000 files" in refusal(tmp_path / "0.conf")


def test_a_large_file_that_is_included_often(tmp_path: Path) -> None:
    written(tmp_path / "large.conf", "#" * (1 << 20))
    written(tmp_path / "all.conf", "include large.conf\n" * 500)
    assert "characters, includes and variables counted" in refusal(tmp_path / "all.conf")


@pytest.mark.parametrize(
    ("name", "reason"),
    [("cycle.conf", "break the cycle"), ("link/cycle.conf", "too many levels of symbolic")],
)
def test_an_include_that_comes_back(tmp_path: Path, name: str, reason: str) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    assert reason in refusal(written(tmp_path / "cycle.conf", f"include '{name}'\n"))


@pytest.mark.parametrize("kind", ["fifo", "zeros", "directory", "nul"])
@pytest.mark.parametrize("included", [False, True])
def test_what_is_no_regular_file(tmp_path: Path, kind: str, included: bool) -> None:
    # given
    path = f"{tmp_path}/{kind}"
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "directory":
        (tmp_path / kind).mkdir()
    elif kind == "nul":
        path += "\0"
    else:
        path = "/dev/zero"
    reasons = {"fifo": "not a regular file", "zeros": "not a regular file", "directory": "is a directory"}
    # when
    if included:
        text = refusal(written(tmp_path / "a.conf", f"port: 1\ninclude '{path}'\n"))
        # then
        assert f"{tmp_path}/a.conf:2:1: include" in text
    else:
        text = refusal(path)
    assert reasons.get(kind, "invalid argument") in text


def test_a_file_that_is_too_large(tmp_path: Path) -> None:
    with (tmp_path / "large.conf").open("wb") as file:
        file.truncate(CONFIG_SIZE_MAX + 1)
    assert "larger than" in refusal(tmp_path / "large.conf")


DEEP = 50_000
TEXTS = {
    "maps": ("a {" * DEEP, "nested more than 100 deep"),
    "lists": ("a: " + "[" * DEEP, "nested more than 100 deep"),
    "maps and lists": ("a " + "{b [" * DEEP, "nested more than 100 deep"),
    "groups": ("{" * DEEP, "never closed"),
    "references, each one level deeper": (
        "v0: [1]\n" + "".join(f"v{n + 1}: [$v{n}]\n" for n in range(2000)) + "server_tags: $v2000",
        "nested more than 100 deep",
    ),
    "references that double at every level": (
        "v0: [1]\n" + "".join(f"v{n + 1}: [$v{n}, $v{n}]\n" for n in range(60)) + "server_tags: $v60",
        "each counted wherever it is referred to",
    ),
    "a number of 5,000 digits": (f"max_payload: {'9' * 5000}", "is too large"),
    "a port of 5,000 digits": (f'listen: "a:{"9" * 5000}"', "which is no number"),
    "a size of 5,000 digits": (f'jetstream {{ max_mem: "{"9" * 5000}G" }}', "expects a size"),
    "a duration of 5,000 digits": (f'write_deadline: "{"9" * 5000}s"', "is no duration"),
    "a duration of many parts": (f'write_deadline: "{"1s" * 500_000}x"', "is no duration"),
    "a store directory with a NUL": ('jetstream { store_dir: "/a\\x00b" }', "holds a NUL character"),
    "a host with a NUL": ('host: "a\\x00b"', "holds a NUL character"),
    "many unknown keys": ("".join(f"key{n}: 1\n" for n in range(20_000)), "unknown field"),
    "an unknown key of a megabyte": (f"{'a' * 1_000_000}: 1", "unknown field"),
    "an unknown variable of a megabyte": (f"port: ${'a' * 1_000_000}", "can not be found"),
}


@pytest.mark.parametrize("name", TEXTS)
def test_text_that_is_too_much(tmp_path: Path, name: str) -> None:
    text, reason = TEXTS[name]
    found = refusal(written(tmp_path / "a.conf", text))
    assert reason in found
    assert found.startswith(f"{tmp_path}/a.conf:")


def test_variables_of_the_environment_that_lead_on_for_ever(tmp_path: Path) -> None:
    path = written(tmp_path / "a.conf", "server_name: $V0")
    chain = {f"V{n}": f"$V{n + 1}" for n in range(2000)}
    assert "nested more than 100 deep" in refusal(path, chain)
    doubling = {f"V{n}": f"[$V{n + 1}, $V{n + 1}]" for n in range(60)} | {"V60": "x" * 100_000}
    assert refusal(path, doubling)
