"""boto3 clients of a broker. Sessions are shared, since they parse AWS's models; clients are
not."""

from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import boto3
import botocore.session
from botocore.config import Config

from tests.compliance.broker import REGION
from tests.compliance.query_model import query_loader

# A refusal must come to light, not be tried again until it goes away.
CONFIG = Config(retries={"total_max_attempts": 1}, connect_timeout=10, read_timeout=40)


@lru_cache(maxsize=2)
def _session(protocol: str) -> boto3.Session:
    session = botocore.session.Session()
    if protocol == "query":
        with TemporaryDirectory() as folder:
            loader = query_loader(Path(folder))
            loader.load_service_model("sqs", "service-2")  # it keeps what it has read
        session.register_component("data_loader", loader)
    return boto3.Session(botocore_session=session)


def _options(endpoint: str, key: str, secret: str, region: str) -> dict[str, Any]:
    return {
        "endpoint_url": endpoint,
        "aws_access_key_id": key,
        "aws_secret_access_key": secret,
        "region_name": region,
        "config": CONFIG,
    }


def client(
    endpoint: str,
    protocol: str = "json",
    service: str = "sqs",
    key: str = "test",
    secret: str = "secret",
    region: str = REGION,
) -> Any:
    return _session(protocol).client(service, **_options(endpoint, key, secret, region))


def resource(endpoint: str) -> Any:
    return _session("json").resource("sqs", **_options(endpoint, "test", "secret", REGION))
