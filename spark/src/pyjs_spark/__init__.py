"""A PySpark data source for JetStream streams; it works with pyjs-server and with nats-server.

    import pyjs_spark
    spark = pyjs_spark.session()
    orders = spark.read.format("jetstream").option("stream", "ORDERS").load()

`session` makes a local Spark with settings that fit one machine; `register` makes the format known to a Spark
session that is there already. Importing this loads neither pyspark nor pyarrow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyjs_spark import sessions
from pyjs_spark.version import VERSION

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__version__ = VERSION
__all__ = ["register", "session"]


def register(spark: SparkSession) -> None:
    """Make the format `jetstream` known to a session. Needed where this package came with --py-files only."""
    from pyjs_spark.source import JetStreamSource

    spark.dataSource.register(JetStreamSource)


def session(app_name: str = "pyjs", master: str = "local[*]", **conf: object) -> SparkSession:
    """Return a Spark session with `jetstream` registered; `conf` goes before the defaults of `sessions.py`.

    Names of Spark's settings have dots: `session(**{"spark.ui.enabled": "true"})`. If a session is there already, it
    is returned with those settings that can still change.

    Raises:
        SparkMissing: there is no pyspark, no pyarrow, or no Java 17 or newer.
    """
    made = sessions.make(app_name, master, conf)
    register(made)
    return made
