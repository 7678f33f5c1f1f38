"""A PySpark data source for JetStream streams; it works with pyjs-server and with nats-server.

    import pyjs_spark
    spark = pyjs_spark.session()
    orders = spark.read.format("jetstream").option("stream", "ORDERS").load()

`session` starts a local Spark with settings for one machine; `register` adds the format to an existing Spark
session. Importing this package loads neither pyspark nor pyarrow.
"""

from __future__ import annotations

from pyjs_spark.datasource.sessions import register, session
from pyjs_spark.version import VERSION

__version__ = VERSION
__all__ = ["register", "session"]
