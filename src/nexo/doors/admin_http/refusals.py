"""What only HTTP can get wrong, as errors like all others.

InvalidArgument
├── NoSuchResource    404    the path leads nowhere
├── WrongMethod       405
├── TooSlow           408    the body took too long to arrive; of `doors.http`
└── WrongContentType  415    a body that is not JSON
"""

from __future__ import annotations

from nexo.vocabulary.errors import InvalidArgument


class NoSuchResource(InvalidArgument):
    code = "not_found"
    http_status = 404


class WrongMethod(InvalidArgument):
    code = "wrong_method"
    http_status = 405


class WrongContentType(InvalidArgument):
    code = "wrong_content_type"
    http_status = 415
