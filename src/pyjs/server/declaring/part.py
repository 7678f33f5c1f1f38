"""The server's part for declared streams; it loads the rest of this package only if the file declares streams."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyjs.config.errors import ConfigError, Place
from pyjs.server.failures import fail

if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import Any

    from pyjs.config.options import Options
    from pyjs.declared.assets import AccountAssets
    from pyjs.monitor.own.declaredz import DeclaredReport
    from pyjs.server.declaring.applier import Applier
    from pyjs.server.driver import Driver


class DeclaredStreams:
    """The declared streams, consumers and buckets of one server."""

    def __init__(self) -> None:
        self._first: tuple[AccountAssets, ...] = ()  # to be applied by the start
        self._applier: Applier | None = None  # None: the file has declared nothing yet

    def read_first(self, options: Options) -> None:
        """Read the assets at the beginning of a start.

        Raises:
            StartFailed: an asset is invalid.
        """
        try:
            self._first = read_declared(options)
        except ConfigError as error:
            fail(str(error))

    async def start(self, driver: Driver) -> None:
        """Create and update the declared streams and consumers, before clients are accepted."""
        if self._first:
            await self._made(driver, self._first).start()

    def reloaded(self, driver: Driver, assets: tuple[AccountAssets, ...]) -> None:
        """Apply the assets of a reloaded file."""
        if self._applier is None and not assets:
            return
        (self._applier or self._made(driver, ())).reloaded(assets)

    def report(self) -> Generator[Any, None, DeclaredReport]:
        """Compare the streams with the file in steps, and return a report.

        A step may yield a future, for which the caller must wait.
        """
        # Imported lazily: only a monitoring port needs it.
        from pyjs.monitor.own.declaredz import nothing_declared

        return nothing_declared() if self._applier is None else self._applier.drift.report()

    def stop(self) -> None:
        """Start no further application or comparison of the assets."""
        if self._applier is not None:
            self._applier.stop()

    def _made(self, driver: Driver, assets: tuple[AccountAssets, ...]) -> Applier:
        from pyjs.server.declaring.applier import Applier

        self._applier = Applier(driver, assets)
        return self._applier


def read_declared(options: Options) -> tuple[AccountAssets, ...]:
    """Return the declared assets of a configuration, or () if it declares none.

    With several workers, only the first one has assets, since it applies them for all.

    Raises:
        ConfigError: an asset is invalid, or a package that reads assets is not installed.
    """
    if not options.declares_assets or (options.worker is not None and options.worker.number > 1):
        return ()
    # Imported lazily, since it takes half a second: it loads pydantic.
    try:
        from pyjs.declared.reading import read_assets
    except ModuleNotFoundError as error:
        cause = f"declared streams need a package that is not installed: {error.name}"
        raise ConfigError.at(
            Place(options.config_path or "", 0, 0), cause, f"pip install {error.name}"
        ) from None
    return read_assets(options)
