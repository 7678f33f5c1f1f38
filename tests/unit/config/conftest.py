"""Loading a configuration in one call: files are given as texts, the environment as a mapping."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import pytest

from pyjs.config.errors import ConfigError
from pyjs.config.load import load_options
from pyjs.config.options import Options


class Load(Protocol):
    def __call__(
        self,
        text: str,
        files: Mapping[str, str] = ...,
        environ: Mapping[str, str] = ...,
        flags: Mapping[str, str | int | bool] = ...,
    ) -> Options: ...


class Refusal(Protocol):
    def __call__(
        self, text: str, files: Mapping[str, str] = ..., environ: Mapping[str, str] = ...
    ) -> str: ...


@pytest.fixture
def load() -> Load:
    """Return a function that loads its text as the file server.conf."""

    def load(
        text: str,
        files: Mapping[str, str] = {},
        environ: Mapping[str, str] = {},
        flags: Mapping[str, str | int | bool] = {},
    ) -> Options:
        texts = {"server.conf": text, **files}

        def read(path: str) -> str:
            if path not in texts:
                raise FileNotFoundError(2, "No such file or directory", path)
            return texts[path]

        return load_options("server.conf", read, environ, flags)

    return load


@pytest.fixture
def refusal(load: Load) -> Refusal:
    """Load a text that must be refused; return the message."""

    def refusal(text: str, files: Mapping[str, str] = {}, environ: Mapping[str, str] = {}) -> str:
        with pytest.raises(ConfigError) as caught:
            load(text, files, environ)
        return str(caught.value)

    return refusal
