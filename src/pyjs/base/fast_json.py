"""The JSON library, loaded by its first use: `loads`, `dumps`, `Fragment` and `JSONDecodeError` of orjson.

orjson brings along what it can also write (dataclasses, uuid, datetime, enum), 25 ms of which a start that recovers
streams needs nothing. Use it as `fast_json.loads(...)`: from the first use on that is orjson's own function. Code
that may wait for the library asks `is_loaded`, which is false until all of it is there, also while another thread
loads it.

Source: PEP 562; https://github.com/ijl/orjson
"""

from __future__ import annotations

from pyjs.base import TYPE_CHECKING

_NAMES = ("Fragment", "JSONDecodeError", "dumps", "loads")


def is_loaded() -> bool:
    """Tell whether the library is there."""
    return "loads" in globals()


if TYPE_CHECKING:
    from orjson import Fragment as Fragment
    from orjson import JSONDecodeError as JSONDecodeError
    from orjson import dumps as dumps
    from orjson import loads as loads
else:

    def __getattr__(name):
        """Load the library when something of it is asked for, once."""
        if name not in _NAMES:
            raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
        import orjson

        globals().update({each: getattr(orjson, each) for each in _NAMES})
        return globals()[name]
