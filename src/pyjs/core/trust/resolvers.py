"""Resolvers: the sources of account tokens. A thread calls their methods."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from pyjs.core.job import JobQueue
from pyjs.core.trust.directory import TokenDirectory

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyjs.base.clock import Clock
    from pyjs.base.disk import Disk
    from pyjs.base.log import Log
    from pyjs.config.options import Options, ResolverOptions

MISSING = "account missing"


class ResolverFault(Exception):
    """Raised when a resolver has no token for an account; the exception's message is the reason."""


class Resolver(ABC):
    """A source of account tokens, such as a directory or an account server."""

    queue = JobQueue.ACCOUNTS  # the queue for its calls
    bootstraps = True  # if the token of the system account is missing, trust the account's own key

    @abstractmethod
    def fetch(self, name: str) -> str:
        """Return the token of an account.

        Raises:
            ResolverFault: the resolver has no token for the account.
        """


class MemoryResolver(Resolver):
    """A resolver that returns the tokens in the configuration file."""

    bootstraps = False

    def __init__(self, tokens: dict[str, str]) -> None:
        self._tokens = tokens

    def fetch(self, name: str) -> str:
        """Return the token of an account in the configuration file.

        Raises:
            ResolverFault: the file has no token for the account.
        """
        token = self._tokens.get(name)
        if token is None:
            raise ResolverFault(MISSING)
        return token


class DirectoryResolver(Resolver):
    """A resolver that reads the tokens from the files of a directory."""

    def __init__(self, options: ResolverOptions, directory: TokenDirectory) -> None:
        self.options = options
        self.directory = directory

    def fetch(self, name: str) -> str:
        """Return the token in the file of an account.

        Raises:
            ResolverFault: there is no usable file for the account.
        """
        token = self.directory.load(name)
        if token is None:
            raise ResolverFault("account jwt not found")
        return token


class UrlResolver(Resolver):
    """A resolver that fetches tokens from an account server over HTTP."""

    queue = JobQueue.NETWORK

    def __init__(self, options: ResolverOptions) -> None:
        self._url, self._timeout_ns = options.url, options.timeout_ns
        self.get: Callable[[str, int], str] | None = None  # returns the body of a URL; pyjs.server sets it

    def fetch(self, name: str) -> str:
        """Return the token of an account from the account server.

        Raises:
            ResolverFault: the server does not answer with a token.
        """
        if self.get is None:
            raise ResolverFault("there is no network")
        return self.get(self._url + name, self._timeout_ns)


def resolver_from(options: Options, disk: Disk, clock: Clock, log: Log) -> Resolver:
    """Return the resolver that the options describe.

    If the options name a directory, create it if it is missing, and store the tokens of the configuration file in it.

    Raises:
        OSError: the directory cannot be used.
    """
    given = options.resolver
    if given is None or given.kind == "memory":
        return MemoryResolver(options.resolver_preload)
    if given.kind == "url":
        return UrlResolver(given)
    directory = TokenDirectory(disk, given, clock, log)
    directory.open()
    for name, token in options.resolver_preload.items():
        directory.save_newer(name, token)
    return DirectoryResolver(given, directory)
