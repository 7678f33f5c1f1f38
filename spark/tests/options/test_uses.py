"""No option is accepted and ignored: each command refuses those without an effect on it, and uses the others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pyjs_spark.cli.config import KINDS
from pyjs_spark.cli.main import main
from pyjs_spark.errors import OptionError
from pyjs_spark.lake import archive
from pyjs_spark.lake.archive_job import KIND as ARCHIVE
from pyjs_spark.lake.compact import KIND as COMPACT
from pyjs_spark.lake.dead_letters import KIND as DEAD_LETTERS
from pyjs_spark.lake.quality import KIND as QUALITY
from pyjs_spark.lake.replay import pipeline as replay
from pyjs_spark.lake.replay.run import KIND as REPLAY
from pyjs_spark.options import uses
from pyjs_spark.options.reading import TABLE, Options, parse_options
from pyjs_spark.options.writing import SINK_TABLE
from pyjs_spark.read.plan import StreamState
from pyjs_spark.read.ranges import ReadRange

# For each option a value other than its default, and the other options that it requires.
VALUES = {
    "subjects": "a.*",
    "startingOffsets": '{"S": 12}',
    "endingOffsets": '{"S": 99}',
    "startingTimestamp": "1769860800000",
    "endingTimestamp": "1769860800001",
    "startingOffsetsByTimestamp": '{"S": 5}',
    "endingOffsetsByTimestamp": '{"S": 5}',
    "failOnDataLoss": "false",
    "minPartitions": "4",
    "maxRecordsPerPartition": "1000",
    "maxRowsPerTrigger": "5000",
    "maxBytesPerTrigger": "64m",
    "minRowsPerTrigger": "10",
    "maxTriggerDelay": "90s",
    "readMode": "consumer",
    "path": "/store",
    "account": "A",
    "keyFile": "/key",
    "includeHeaders": "false",
    "fetchBatch": "100",
    "fetchExpires": "500ms",
    "idleTimeout": "1m",
    "arrowBatchRows": "500",
    "pushdown": "true",
    "bucket": "B",
    "keys": "a",
    "includeHistory": "true",
    "includeDeletes": "true",
    "objectStore": "O",
    "objects": "a",
    "maxObjectSize": "1m",
    "servers": "nats://a:4222",
    "user": "ann",
    "password": "pw",
    "token": "t",
    "nkeySeedFile": "seed",
    "credsFile": "creds",
    "tls.ca": "ca",
    "tls.cert": "cert",
    "tls.key": "key",
    "tls.hostname": "host",
    "tls.first": "true",
    "jsDomain": "hub",
    "apiPrefix": "$JS.hub.API",
    "requestTimeout": "2s",
}
BESIDE = {
    "account": {"path": "/store"},
    "keyFile": {"path": "/store"},
    "maxTriggerDelay": {"minRowsPerTrigger": "10"},
    "password": {"user": "ann"},
    "tls.cert": {"tls.key": "key"},
    "tls.key": {"tls.cert": "cert"},
}
COMMANDS: dict[str, Callable[[dict[str, str]], Options]] = {
    uses.ARCHIVE: lambda given: ARCHIVE.job({"stream": "S", "target": "lake"}, given).options,
    "compact": lambda given: COMPACT.job({"stream": "S", "target": "lake"}, given).options,
    uses.LATEST: lambda given: COMPACT.job({"stream": "S", "target": "l", "latest": "true"}, given).options,
    "quality": lambda given: QUALITY.job({"stream": "S"}, given).options,
    "dlq-report": lambda given: DEAD_LETTERS.job({"stream": "S"}, given).options,
}
STATE = StreamState("S", "", 1, 9, 9, 900)


def _range(options: Options) -> ReadRange:
    return archive.range_of(options, STATE.name, 1, 10, STATE.created)


# These options are used by the plan of a read or by a check, but not by the range.
PLANNED = uses.BOUNDS | {"account", "keyFile"}


def test_there_is_a_value_for_every_option() -> None:
    assert sorted(VALUES) == sorted(option.name for option in TABLE if option.name != "stream")


def test_commands_use_options_that_there_are() -> None:
    assert {name for used in uses.USED.values() for name in used} <= set(VALUES)
    assert set(COMMANDS) == set(uses.USED)


@pytest.mark.parametrize("option", sorted(VALUES))
@pytest.mark.parametrize("command", COMMANDS)
def test_an_option_is_used_or_refused(command: str, option: str) -> None:
    given = {option: VALUES[option], **BESIDE.get(option, {})}

    if option not in uses.USED[command]:
        with pytest.raises(OptionError):
            COMMANDS[command](given)
        return

    found = COMMANDS[command](given)

    assert found != COMMANDS[command]({})
    if (
        command == uses.ARCHIVE and option not in PLANNED | uses.CONNECTION
    ):  # the others pass their options to Spark
        assert _range(found) != _range(COMMANDS[command]({}))


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["compact", "S", "l", "--latest", "-o", "endingTimestamp=5"], "endingTimestamp is not allowed in compact"),
        (["archive", "S", "l", "-o", "maxRecordsPerPartition=5"], "maxRecordsPerPartition is not allowed in an"),
        (["quality", "S", "-o", "readMode=direct"], "readMode is not allowed in quality"),
        (["compact", "S", "l", "-o", "subjects=a"], "leave it out, or give --latest"),
    ],
)  # fmt: skip
def test_the_command_line_says_which_option_has_no_effect(
    argv: list[str], said: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(argv) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("mode", "option"), [("bulk", "fetchBatch"), ("bulk", "fetchExpires"), ("direct", "fetchExpires")]
)
def test_a_mode_of_reading_refuses_options_of_another(mode: str, option: str) -> None:
    with pytest.raises(OptionError, match=f"option {option} has no effect with readMode={mode}"):
        parse_options({"stream": "S", "readMode": mode, option: VALUES[option]})


def _replay(given: dict[str, str]) -> object:
    head = {"source": "/lake", "stream": "S", "target": "T", "id": "x"}
    return REPLAY.job(head, given).options


SINK_VALUES = {
    **{
        option.name: VALUES.get(option.name, "")
        for option in SINK_TABLE
        if option.target.startswith("connect.")
    },
    "subject": "a",
    "msgIdColumn": "id",
    "msgId": "header",
    "sinkId": "x",
    "delivery": "atLeastOnce",
    "progressBucket": "B",
    "expectedStream": "true",
    "maxInFlight": "7",
    "ackTimeout": "2s",
    "retries": "9",
}


@pytest.mark.parametrize("option", sorted({*VALUES, *SINK_VALUES}))
def test_an_option_is_used_or_refused_in_a_replay(option: str) -> None:
    value = SINK_VALUES.get(option) or VALUES[option]
    given = {option: value, **(BESIDE.get(option, {}) if option in SINK_VALUES else {})}

    if option not in SINK_VALUES or option.lower() in replay.OWN:
        with pytest.raises(OptionError):
            _replay(given)
        return

    assert _replay(given) != _replay({})


def test_every_command_is_walked() -> None:
    assert {kind.name for kind in KINDS.values()} == {"archive", "compact", "quality", "dlq-report", "replay"}
