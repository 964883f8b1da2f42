"""Why a signature is refused, as one tree.

    Unauthorized
    └── SignatureRefused                http
        ├── MissingAuthenticationToken  403    not signed at all
        ├── IncompleteSignature         400    signed, but in a form that cannot be read
        ├── InvalidClientTokenId        403    signed with a key that nobody knows
        ├── SignatureDoesNotMatch       403    signed with another secret, or changed on its way
        └── RequestExpired              400    signed too long ago, or ahead of time

The names are AWS's codes, and stand on the wire: SDKs act on them. One that is told RequestExpired
sets its clock by the reply and tries again.
"""

from __future__ import annotations

from nexo.vocabulary.errors import Unauthorized


class SignatureRefused(Unauthorized):
    """The root: catch this to catch every refused signature."""

    http_status = 403

    @property
    def aws_code(self) -> str:
        return type(self).__name__


class MissingAuthenticationToken(SignatureRefused):
    pass


class IncompleteSignature(SignatureRefused):
    http_status = 400


class InvalidClientTokenId(SignatureRefused):
    pass


class SignatureDoesNotMatch(SignatureRefused):
    pass


class RequestExpired(SignatureRefused):
    http_status = 400
