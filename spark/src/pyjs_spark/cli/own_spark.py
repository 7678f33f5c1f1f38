"""A Spark session for one command. It does not log, and stops when the command ends."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from pyjs_spark import errors
from pyjs_spark.datasource import sessions
from pyjs_spark.errors import SparkError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TRACEBACK = "Traceback (most recent call last):\n"
WORKER_ERROR = re.compile(r"pyjs_spark\.errors\.(\w+): (.+)")


@contextmanager
def own_spark(name: str, master: str, settings: Mapping[str, str]) -> Iterator[SparkSession]:
    """Yield a Spark session, and stop it at the end of the `with` block.

    Raises:
        SparkError: the error of a worker, or another failure of Spark in the block.
    """
    # The command reports errors of workers in one line; Spark would log each three times, with its stack.
    quiet = {"spark.log.level": "OFF", "spark.ui.showConsoleProgress": sys.stderr.isatty()}
    spark = None
    logging.root.addFilter(_is_told)
    # py4j logs the exceptions that it also raises, each with its stack.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    try:
        spark = sessions.session(name, master, **{**quiet, **settings})
        yield spark
    except SparkError:
        raise
    except Exception as error:  # for example Py4JJavaError, whose text contains the worker's error
        raise worker_error(str(error)) from error
    finally:
        if spark is not None:
            with suppress(Exception):  # the JVM may have ended already; all results have been reported
                spark.stop()
        logging.root.removeFilter(_is_told)


def _is_told(record: logging.LogRecord) -> bool:
    """Return False if a record should not be logged because it is Py4J's stack trace of an interrupt.

    The command itself reports an interrupt in one line.
    """
    return not record.getMessage().endswith("while sending command.")


def worker_error(text: str) -> SparkError:
    """Return a worker's error, which is taken from the text of Spark's exception.

    If the text names no error of this package, a SparkError with a summary of the text is returned.
    """
    match = WORKER_ERROR.search(text)
    kind = getattr(errors, match[1], None) if match else None
    if match is None or kind is None:
        return SparkError(f"Spark failed: {_why(text)}")
    if kind is errors.ApiError:
        return SparkError(match[2])
    found = kind(match[2])
    assert isinstance(found, SparkError)
    return found


def _why(text: str) -> str:
    """Return a short cause from the text of Spark's exception.

    The cause is the exception of the last Python traceback or, without a traceback, the first two lines of the text.
    """
    _, found, after = text.rpartition(TRACEBACK)
    ends = [line for line in after.splitlines() if line and not line[0].isspace()]
    if found and ends:
        return f"a worker ended with {ends[0]}"
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return " ".join(lines[:2]) or "without a word"
