"""How a client calls itself, so that an operator knows who holds what."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import PurePath

from nexo.vocabulary.limits import CONSUMER_CHARS_MAX


def client_name() -> str:
    """The program, the process and the machine."""
    program = PurePath(sys.argv[0]).name if sys.argv and sys.argv[0] else "python"
    return f"{program}-{os.getpid()}@{socket.gethostname()}"[:CONSUMER_CHARS_MAX]
