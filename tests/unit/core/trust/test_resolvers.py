"""Resolvers: tokens from the configuration file, from a directory, and from an account server."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyjs.base.clock import VirtualClock
from pyjs.base.disk import OsDisk
from pyjs.base.log import ListLog
from pyjs.config.options import Options, ResolverOptions
from pyjs.core.job import JobQueue
from pyjs.core.trust.resolvers import (
    DirectoryResolver,
    MemoryResolver,
    Resolver,
    ResolverFault,
    UrlResolver,
    resolver_from,
)
from pyjs.testing.jwt import Key, account_token

OPERATOR, A, B = Key("operator", b"o" * 32), Key("account", b"a" * 32), Key("account", b"b" * 32)
OLDER, NEWER = (account_token(OPERATOR, A, issued_at=at) for at in (5, 9))


def made(given: ResolverOptions | None, preload: dict[str, str] | None = None) -> Resolver:
    options = Options(resolver=given, resolver_preload=preload or {})
    return resolver_from(options, OsDisk(), VirtualClock(), ListLog())


def refused(resolver: Resolver, name: str) -> str:
    with pytest.raises(ResolverFault) as raised:
        resolver.fetch(name)
    return str(raised.value)


@pytest.mark.parametrize("given", [None, ResolverOptions("memory")])
def test_without_another_resolver_the_tokens_are_those_of_the_file(given: ResolverOptions | None) -> None:
    resolver = made(given, {A.public: OLDER})
    assert isinstance(resolver, MemoryResolver)
    assert resolver.fetch(A.public) == OLDER
    assert refused(resolver, B.public) == "account missing"


def test_only_the_file_must_have_the_system_account() -> None:
    assert not MemoryResolver({}).bootstraps
    assert UrlResolver(ResolverOptions("url")).bootstraps


@pytest.mark.parametrize("kind", ["full", "cache"])
def test_a_directory_is_created_and_gets_the_tokens_of_the_file(tmp_path: Path, kind: str) -> None:
    resolver = made(ResolverOptions(kind, dir=str(tmp_path / "new")), {A.public: OLDER})
    assert isinstance(resolver, DirectoryResolver)
    assert resolver.queue is JobQueue.ACCOUNTS
    assert resolver.fetch(A.public) == OLDER
    assert [path.name for path in (tmp_path / "new").iterdir()] == [f"{A.public}.jwt"]


@pytest.mark.parametrize("name", [B.public, "", "..", "../x", f"{A.public}/../{A.public}", f"{A.public}\0"])
def test_a_directory_has_accounts_and_nothing_else(tmp_path: Path, name: str) -> None:
    (tmp_path.parent / "x.jwt").write_text("secret")
    resolver = made(ResolverOptions("full", dir=str(tmp_path)), {A.public: OLDER})
    assert refused(resolver, name) == "account jwt not found"


@pytest.mark.parametrize(("stored", "preloaded"), [(NEWER, OLDER), (OLDER, NEWER)])
def test_of_the_file_and_the_directory_the_newer_token_counts(
    tmp_path: Path, stored: str, preloaded: str
) -> None:
    (tmp_path / f"{A.public}.jwt").write_text(stored)
    resolver = made(ResolverOptions("full", dir=str(tmp_path)), {A.public: preloaded})
    assert resolver.fetch(A.public) == NEWER


def test_a_directory_that_cannot_be_used_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        made(ResolverOptions("full", dir=str(tmp_path / "file")))


def test_an_account_server_is_asked_for_the_account_behind_its_url_within_its_time() -> None:
    resolver = made(ResolverOptions("url", url="http://there/accounts/", timeout_ns=7))
    assert isinstance(resolver, UrlResolver)
    asked: list[tuple[str, int]] = []

    def get(url: str, timeout_ns: int) -> str:
        asked.append((url, timeout_ns))
        return OLDER

    resolver.get = get
    assert resolver.fetch(A.public) == OLDER
    assert asked == [(f"http://there/accounts/{A.public}", 7)]


def test_an_account_server_is_not_asked_before_there_is_a_network() -> None:
    assert refused(made(ResolverOptions("url", url="http://there/")), A.public) == "there is no network"


def test_a_slow_account_server_does_not_delay_the_jobs_of_files() -> None:
    assert made(ResolverOptions("url", url="http://there/")).queue is JobQueue.NETWORK
