"""`sts:GetCallerIdentity`: many tools ask who they are before they do anything else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nexo.doors.sqs_http.addresses import partition
from nexo.doors.sqs_http.shapes import Shape

if TYPE_CHECKING:
    from nexo.doors.sqs_http.call import Call

STS_NAMESPACE = "https://sts.amazonaws.com/doc/2011-06-15/"


class GetCallerIdentityRequest(Shape, frozen=True):
    """No parameters."""


class GetCallerIdentityResult(Shape, frozen=True):
    arn: str | None = None
    user_id: str | None = None
    account: str | None = None


async def get_caller_identity(call: Call, request: GetCallerIdentityRequest) -> Shape:
    place = call.caller.place
    return GetCallerIdentityResult(
        arn=f"arn:{partition(place.region)}:iam::{place.account}:root",
        user_id=call.caller.access_key_id or place.account,
        account=place.account,
    )
