"""What tests with SDKs of AWS share: whom they talk to, as whom, and that it is nobody else."""

from __future__ import annotations

import re
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest
from botocore.config import Config

if TYPE_CHECKING:
    from collections.abc import Iterator

ACCOUNT = "000000000000"  # whose queues are meant when the access key names no account
REGION = "us-east-1"
# A refusal must come to light, not be tried again until it goes away.
CONFIG = Config(retries={"total_max_attempts": 1}, connect_timeout=10, read_timeout=40)
_ENDPOINTS = ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_SQS", "AWS_ENDPOINT_URL_SNS")
_numbers = count(1)


def options(
    endpoint: str, key: str = "test", secret: str = "secret", region: str = REGION
) -> dict[str, Any]:
    """Of a client of boto3."""
    return {
        "endpoint_url": endpoint,
        "aws_access_key_id": key,
        "aws_secret_access_key": secret,
        "region_name": region,
        "config": CONFIG,
    }


@contextmanager
def nobody_else() -> Iterator[None]:
    """Whatever the machine is configured for: tests talk to nobody but the broker."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_CONFIG_FILE", "/dev/null")
        patch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        for name in ("AWS_PROFILE", "AWS_REGION", *_ENDPOINTS):
            patch.delenv(name, raising=False)
        yield


def name_of(request: pytest.FixtureRequest, chars_max: int) -> str:
    """A name that no other test uses."""
    test = re.sub(r"\W+", "-", request.function.__name__.removeprefix("test_"))
    return f"{test[:chars_max]}-{next(_numbers)}"
