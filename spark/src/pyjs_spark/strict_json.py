"""A reader for JSON from outside; it raises no error other than ValueError.

Python's json module raises RecursionError for deeply nested text, and accepts halves of surrogate pairs,
which would raise UnicodeEncodeError when the text is written.
"""

from __future__ import annotations

import json
import re
from typing import Any

MAYBE_HALF = re.compile(r"\\u[dD][89a-fA-F]")  # half of a surrogate pair, or the start of a whole pair


def loads(said: bytes | str) -> Any:
    """Return the decoded JSON, or raise ValueError if it is invalid or nests too deeply."""
    # the json module would accept halves in UTF-8 too
    text = said if isinstance(said, str) else bytes(said).decode()
    try:
        found = json.loads(text)
        if MAYBE_HALF.search(text):
            json.dumps(found, ensure_ascii=False).encode()
    except RecursionError:
        raise ValueError("it nests too deeply") from None
    return found


def an_object(said: bytes | str) -> dict[str, Any]:
    """Return the JSON object in a string, or raise ValueError if the string is anything else."""
    found = loads(said)
    if not isinstance(found, dict):
        raise ValueError("it is no object")
    return found
