"""What Spark says when something fails, as one of our errors.

A refusal of the broker travels through a Python worker, the JVM and back, and arrives as text: it
is made an error again, with its code and hint. What is wrong in an SQL condition is the caller's.
"""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError, Py4JNetworkError  # type: ignore[import-untyped]
from pyspark.errors import AnalysisException, ParseException, PySparkException

from nexo.vocabulary import errors
from nexo.vocabulary.errors import InvalidArgument, NexoError, ReadOnly

if TYPE_CHECKING:
    from collections.abc import Callable

_log = logging.getLogger(__name__)
_OURS = re.compile(r"nexo\.vocabulary\.errors\.(\w+): ([^\n]+)")
_HINTED = re.compile(r"(.*?) \((.*)\)$")


def explained(error: BaseException) -> NexoError:
    """The failure of a job in one line."""
    if isinstance(error, NexoError):
        return error
    text = str(error)
    found = _OURS.findall(text)
    if found:
        name, message = found[-1]
        hinted = _HINTED.match(message)
        kind = getattr(errors, name, NexoError)
        return kind(*hinted.groups()) if hinted else kind(message)
    if "No space left on device" in text:
        return ReadOnly(
            "a disk that Spark writes to is full",
            "free space in the lake, in --checkpoint and in spark.local.dir, and run the job again",
        )
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    first = lines[0] if lines else type(error).__name__
    _log.error("%s", text)
    return NexoError(f"Spark failed: {first:.500}", "see the log above for details")


def is_ours(error: BaseException) -> bool:
    """Whether this is a refusal of ours, which says all there is to say in one line."""
    return isinstance(error, NexoError) or _OURS.search(str(error)) is not None


def java_ended(code: int) -> NexoError:
    """What to say when Java is gone, whatever Spark's Python says of it then."""
    how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
    return NexoError(
        f"the Java process of Spark {how}",
        "if it ran out of memory, give it more: --conf spark.driver.memory=4g",
    )


def checked_sql(flag: str, text: str, use: Callable[[str], object]) -> None:
    """Refuse SQL that Spark does not understand, before anything is done."""
    try:
        use(text)
    except (ParseException, AnalysisException) as error:
        said = " ".join(str(error).partition("== SQL")[0].partition(" SQLSTATE")[0].split())
        raise InvalidArgument(
            f"{flag} {text!r:.120} is not valid: {said:.400}",
            "it can use the Spark columns of a message, and text, the body as UTF-8",
        ) from None


BROKEN_CONNECTION = (ConnectionError, Py4JNetworkError)  # as when Java is gone
SPARK_ERRORS = (PySparkException, Py4JError, ConnectionError)
