"""An S3 server for tests: moto's HTTP server on a free port of loopback, with one bucket.

The server stores objects in memory. As Amazon S3 does, it checks conditional puts, which Delta's commits need. It is
a separate process, since deltalake holds Python's lock while deltalake waits for an answer.
"""

from __future__ import annotations

import subprocess
import sys
from typing import Any

KEY, SECRET, REGION, BUCKET = "key", "secret", "us-east-1", "lake"
SERVE = """
import logging, sys
from moto.server import ThreadedMotoServer
logging.getLogger("werkzeug").setLevel(logging.ERROR)  # a line for each request
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
sys.stdin.read()  # until the test ends
server.stop()
"""


class S3Server:
    """The server, and a client of it."""

    def __init__(self) -> None:
        import boto3

        pipe = subprocess.PIPE
        self._server = subprocess.Popen([sys.executable, "-c", SERVE], stdin=pipe, stdout=pipe, text=True)
        assert self._server.stdout is not None
        self.port = int(self._server.stdout.readline())
        self.url = f"http://127.0.0.1:{self.port}"
        self.client: Any = boto3.client(
            "s3",
            endpoint_url=self.url,
            region_name=REGION,
            aws_access_key_id=KEY,
            aws_secret_access_key=SECRET,
        )
        self.client.create_bucket(Bucket=BUCKET)

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment variables that S3 clients read."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": REGION,
            "AWS_DEFAULT_REGION": REGION,
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def names(self, prefix: str) -> list[str]:
        """Return the keys of the objects below a prefix."""
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=prefix)
        return [each["Key"] for page in pages for each in page.get("Contents", ())]

    def stop(self) -> None:
        """Stop the server."""
        self._server.communicate()
