"""An object store on loopback that speaks S3, in a process of its own."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

import boto3

from tests.client.eventually import eventually
from tests.postgresql import free_port

if TYPE_CHECKING:
    from pathlib import Path

BUCKET = "nexo-tests"
REGION = "us-east-1"


class ObjectStore:
    def __init__(self, folder: Path) -> None:
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self._port = port
        with (folder / "moto.log").open("w") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "MOTO_IAM_LOAD_MANAGED_POLICIES": "false"},
            )
        eventually(self._answers, 60.0)
        self.client = boto3.client(
            "s3",
            endpoint_url=self.url,
            region_name=REGION,
            aws_access_key_id="tests",
            aws_secret_access_key="tests",
        )
        self.client.create_bucket(Bucket=BUCKET)

    def _answers(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self._port), 0.2).close()
        except OSError:
            return False
        return True

    @property
    def options(self) -> dict[str, str]:
        """What a lake in it is opened with."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_REGION": REGION,
            "AWS_ACCESS_KEY_ID": "tests",
            "AWS_SECRET_ACCESS_KEY": "tests",
            "AWS_ALLOW_HTTP": "true",
        }

    def keys(self, prefix: str) -> list[str]:
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=prefix)
        return [each["Key"] for page in pages for each in page.get("Contents", [])]

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()
