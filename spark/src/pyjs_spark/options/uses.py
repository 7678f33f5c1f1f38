"""The options that each command uses. All other options are refused, so that none is accepted and then ignored.

Reads with a DataFrame have separate checks (reading.py), which also depend on values.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyjs_spark.errors import OptionError
from pyjs_spark.options.reading import CONNECTION as OF_SERVER
from pyjs_spark.options.reading import ENDS, TABLE, TRIGGERS, Options

CONNECTION = frozenset(option.name for option in OF_SERVER)
FILES = frozenset(("path", "account", "keyFile"))
PORTIONS = frozenset(("fetchBatch", "fetchExpires", "idleTimeout", "arrowBatchRows"))
START = frozenset(("startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp"))
BOUNDS = START | frozenset(ENDS)

ARCHIVE = "an archive"
LATEST = "compact --latest"
USED: Mapping[str, frozenset[str]] = {
    ARCHIVE: CONNECTION | FILES | PORTIONS | {"subjects", "includeHeaders", "failOnDataLoss"},
    "compact": frozenset(),
    LATEST: CONNECTION | PORTIONS | {"subjects", "includeHeaders"},
    "quality": CONNECTION | FILES | PORTIONS | BOUNDS | {"subjects", "includeHeaders", "failOnDataLoss"},
    "dlq-report": CONNECTION | PORTIONS | BOUNDS | {"subjects", "failOnDataLoss"},
}
WHOLE = "it holds streams as they are"
CUT = "ranges end at multiples of rows_per_file"
ASKS = "it asks the server, and files of a store do not answer"
WHY: Mapping[str, Mapping[str, str]] = {
    ARCHIVE: {
        **dict.fromkeys((*BOUNDS, "pushdown"), WHOLE),
        **dict.fromkeys((*TRIGGERS, "minPartitions", "maxRecordsPerPartition"), CUT),
        "readMode": "it chooses it by the stream",
    },
    "compact": dict.fromkeys((each.name for each in TABLE), "files are merged without a server, all of them"),
    LATEST: {
        **dict.fromkeys(BOUNDS, "a snapshot has the last message of each subject as they are now"),
        **dict.fromkeys(FILES, ASKS),
    },
    "dlq-report": dict.fromkeys(FILES, ASKS),
}


def check(command: str, options: Options) -> None:
    """Raise OptionError for a given option that has no effect on a command."""
    for name in options.said:
        if name != "stream" and name not in USED[command]:
            why = WHY.get(command, {}).get(name, "it has no effect here")
            hint = ", or give --latest" if command == "compact" and name in USED[LATEST] else ""
            raise OptionError(f"option {name} is not allowed in {command}: {why}; leave it out{hint}")
