"""The process from which Spark forks its Python processes, with what each of them would import again."""

from __future__ import annotations

import importlib

from pyspark import daemon

for name in ("datasource.source", "read.modes", "write.delivery"):
    importlib.import_module(f"pyjs_spark.{name}")

if __name__ == "__main__":
    daemon.manager()
