"""A PySpark data source for JetStream streams; it works with pyjs-server and with nats-server.

    import pyjs_spark
    spark = pyjs_spark.session()
    orders = spark.read.format("jetstream").option("stream", "ORDERS").load()

`session` makes a local Spark with settings that fit one machine; `register` makes the format known to a Spark
session that is there already. Importing this loads neither pyspark nor pyarrow.
"""

from __future__ import annotations

from pyjs_spark.datasource.sessions import register, session
from pyjs_spark.version import VERSION

__version__ = VERSION
__all__ = ["register", "session"]
