"""The limit of file descriptors of this process, and the share that store files may use."""

from __future__ import annotations

import resource

import pytest

from pyjs.server.system.descriptors import FILES_MAX, FILES_MIN, open_files_max, raise_limit


class Limits:
    """Stands for the real limits of a process."""

    def __init__(self, soft: int, hard: int, highest: int = 1 << 30) -> None:
        self.limits = (soft, hard)
        self._highest = highest

    def getrlimit(self, which: int) -> tuple[int, int]:
        return self.limits

    def setrlimit(self, which: int, limits: tuple[int, int]) -> None:
        if limits[0] > self._highest:
            raise ValueError("current limit exceeds maximum limit")
        self.limits = limits


def limits(monkeypatch: pytest.MonkeyPatch, *numbers: int) -> Limits:
    found = Limits(*numbers)
    monkeypatch.setattr(resource, "getrlimit", found.getrlimit)
    monkeypatch.setattr(resource, "setrlimit", found.setrlimit)
    return found


def test_the_soft_limit_becomes_the_hard_one(monkeypatch: pytest.MonkeyPatch) -> None:
    found = limits(monkeypatch, 1024, 4096)
    raise_limit()
    assert found.limits == (4096, 4096)


def test_a_limit_that_cannot_be_raised_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    found = limits(monkeypatch, 1024, 4096, 2048)
    raise_limit()
    assert found.limits == (1024, 4096)


@pytest.mark.parametrize(
    ("limit", "files"),
    [
        (16, FILES_MIN),
        (256, 96),
        (1024, 480),
        (1 << 20, FILES_MAX),
        (resource.RLIM_INFINITY, FILES_MAX),
    ],
)
def test_files_get_a_share_of_the_limit(monkeypatch: pytest.MonkeyPatch, limit: int, files: int) -> None:
    limits(monkeypatch, limit, limit)
    assert open_files_max() == files
