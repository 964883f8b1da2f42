"""boto3 clients of a broker. Sessions are shared, since they parse AWS's models; clients are
not."""

from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import boto3
import botocore.session

from tests.aws import REGION, options
from tests.compliance.query_model import query_loader


@lru_cache(maxsize=2)
def _session(protocol: str) -> boto3.Session:
    session = botocore.session.Session()
    if protocol == "query":
        with TemporaryDirectory() as folder:
            loader = query_loader(Path(folder))
            loader.load_service_model("sqs", "service-2")  # it keeps what it has read
        session.register_component("data_loader", loader)
    return boto3.Session(botocore_session=session)


def client(
    endpoint: str,
    protocol: str = "json",
    service: str = "sqs",
    key: str = "test",
    secret: str = "secret",
    region: str = REGION,
) -> Any:
    return _session(protocol).client(service, **options(endpoint, key, secret, region))


def resource(endpoint: str) -> Any:
    return _session("json").resource("sqs", **options(endpoint))
