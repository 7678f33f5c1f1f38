"""The JSON library, loaded by its first use: `loads`, `dumps` and `JSONDecodeError` of orjson.

orjson brings along what it can also write (dataclasses, uuid, datetime, enum), 25 ms of which a start that recovers
streams needs nothing. Use it as `fast_json.loads(...)`: from the first use on that is orjson's own function.

Source: PEP 562; https://github.com/ijl/orjson
"""

from __future__ import annotations

from pyjs.base import TYPE_CHECKING

__all__ = ["JSONDecodeError", "dumps", "loads"]

if TYPE_CHECKING:
    from orjson import JSONDecodeError, dumps, loads
else:

    def __getattr__(name):
        """Load the library when something of it is asked for, once."""
        if name not in __all__:
            raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
        import orjson

        globals().update({each: getattr(orjson, each) for each in __all__})
        return globals()[name]
