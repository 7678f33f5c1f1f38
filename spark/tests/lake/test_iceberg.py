"""How an Iceberg table finds its catalog; everything else is in test_tables.py."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from spark.tests.conftest import arrow_or_skip, required

arrow_or_skip()
if not required("spark"):
    pytest.importorskip("pyiceberg", reason="pyiceberg is not installed (package extra lake)")

from pyjs_spark.errors import SparkError
from pyjs_spark.lake import lakes
from pyjs_spark.lake.tables.table import Lake, told


@pytest.mark.parametrize("warehouse", ["", "prod"])
def test_a_rest_catalog_hears_of_a_warehouse_only_where_one_is_named(tmp_path: Path, warehouse: str) -> None:
    asked = []

    class Catalog(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_error(404)

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Catalog) as server, ThreadPoolExecutor(1) as pool:
        server.timeout = 60  # otherwise an idle client would occupy the pool
        pool.submit(server.handle_request)
        said = {"type": "rest", "uri": f"http://127.0.0.1:{server.server_port}"}
        lake = Lake(str(tmp_path), "iceberg", said | ({"warehouse": warehouse} if warehouse else {}))
        with pytest.raises(SparkError, match="404"), told(table := lakes.table_of(lake, "A")):
            table.record()

    assert asked == ["/v1/config" + (f"?warehouse={warehouse}" if warehouse else "")]
