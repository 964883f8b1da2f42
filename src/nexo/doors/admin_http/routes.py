"""Every operation of the API. What has no row here does not exist: routes, decoding, access, the
audit log, the OpenAPI document and its page all come from this table."""

from __future__ import annotations

from nexo.doors.admin_http.definitions import DEFINITIONS
from nexo.doors.admin_http.messages import MESSAGES
from nexo.doors.admin_http.overview import OVERVIEW
from nexo.doors.admin_http.queues import QUEUES
from nexo.doors.admin_http.redrives import REDRIVES
from nexo.doors.admin_http.tokens import TOKENS
from nexo.doors.admin_http.topic_messages import TOPIC_MESSAGES
from nexo.doors.admin_http.topics import TOPICS

OPERATIONS = (
    *OVERVIEW,
    *QUEUES,
    *MESSAGES,
    *REDRIVES,
    *TOPICS,
    *TOPIC_MESSAGES,
    *TOKENS,
    *DEFINITIONS,
)
