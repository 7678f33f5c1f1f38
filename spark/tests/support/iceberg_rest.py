"""Iceberg's own REST catalog server for tests, on a free port of loopback; its catalog is an SQLite file."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from pathlib import Path

from spark.tests.jars import jars
from spark.tests.support.java import PLAIN_JAVA
from tests.conformance.harness.process import free_port

START_S = 120.0


class RestCatalog:
    """The server; its metadata is in a folder."""

    def __init__(self, folder: Path) -> None:
        import pyspark

        folder.mkdir()
        hadoop = sorted((Path(pyspark.__file__).parent / "jars").glob("hadoop-client-*.jar"))
        classes = [*jars("iceberg_rest"), *hadoop]
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self._log = folder / "log"
        java = Path(os.environ["JAVA_HOME"], "bin", "java") if "JAVA_HOME" in os.environ else "java"
        command = [str(java), *PLAIN_JAVA.split(), "-Xmx256m", "-cp", os.pathsep.join(map(str, classes))]
        settings = {
            "CATALOG_REST_PORT": str(port),
            "CATALOG_URI": f"jdbc:sqlite:{folder}/catalog.db",
            "CATALOG_JDBC_SCHEMA__VERSION": "V1",
            "CATALOG_WAREHOUSE": folder.as_uri(),
        }
        with self._log.open("wb") as log:
            self._server = subprocess.Popen(
                [*command, "org.apache.iceberg.rest.RESTCatalogServer"],
                env={**os.environ, **settings},
                stdout=log,
                stderr=log,
            )
        try:
            self._wait(port)
        except BaseException:
            self.stop()
            raise

    def _wait(self, port: int) -> None:
        deadline_s = time.monotonic() + START_S
        while True:
            assert self._server.poll() is None, self._log.read_text()
            assert time.monotonic() < deadline_s, self._log.read_text()
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    return
            time.sleep(0.05)  # polling: it does not report that it is ready

    @property
    def settings(self) -> dict[str, str]:
        """Return the settings with which a client uses this catalog."""
        return {"type": "rest", "uri": self.url}

    def stop(self) -> None:
        """Stop the server."""
        self._server.kill()
        self._server.wait()
