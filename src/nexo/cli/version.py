"""`nexo version`: this command's version, and the broker's if one answers."""

import platform

from nexo import __version__
from nexo.cli.talk import Talk, talks
from nexo.vocabulary.errors import NexoError


@talks
def version(talk: Talk) -> None:
    """Show the versions of this command and of the broker.

    \b
    Examples
      nexo version
      nexo version --json
    """
    try:
        broker = talk.require_broker()
    except NexoError:
        broker = None
    if talk.as_json:
        talk.document(
            {"version": __version__, "python": platform.python_version(), "broker": broker}
        )
    else:
        talk.line(f"nexo {__version__} on Python {platform.python_version()}")
        talk.line(f"broker: {broker or 'none'} at {talk.url}")
