"""A schema registry for tests: the part of Confluent's REST API that readers use, over HTTP on a free port.

    POST /subjects/{subject}/versions            {"schema": TEXT, "schemaType": "AVRO"} -> {"id": N}
    GET  /schemas/ids/{id}                       -> {"schema": TEXT}
    GET  /schemas/ids/{id}?format=serialized     protobuf only: -> {"schema": base64 of a FileDescriptorProto}

Source: the API reference of Confluent's Schema Registry; the wire format is that of its serializers.
"""

from __future__ import annotations

import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

NOT_FOUND = {"error_code": 40403, "message": "Schema not found"}


class SchemaRegistry:
    """A schema registry: schemas by id."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self._schemas: list[dict[str, str]] = []
        registry = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                registry.asked.append(self.path)
                self._answer(*registry.get(self.path))

            def do_POST(self) -> None:
                said = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                self._answer(200, {"id": registry.add(said)})

            def log_message(self, *said: object) -> None: ...

            def _answer(self, code: int, body: dict[str, Any]) -> None:
                data = json.dumps(body).encode()
                self.send_response(code)
                self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()
        self.port = self._server.server_port

    def add(self, said: dict[str, str]) -> int:
        """Register a schema; its key `serialized` has what a real registry compiles from a protobuf schema."""
        self._schemas.append(said)
        return len(self._schemas)

    def get(self, path: str) -> tuple[int, dict[str, Any]]:
        """Return the answer to a GET."""
        url = urlsplit(path)
        match = re.fullmatch(r"/schemas/ids/(\d+)", url.path)
        if match is None or not 1 <= int(match[1]) <= len(self._schemas):
            return 404, NOT_FOUND
        found = self._schemas[int(match[1]) - 1]
        is_serialized = parse_qs(url.query).get("format") == ["serialized"]
        return 200, {"schema": found["serialized" if is_serialized else "schema"]}

    def stop(self) -> None:
        """Stop the server."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
