"""Answers that wait for the disk.

Those who await one go on a turn of the loop after the commit has ended. A door cannot wait that
long: what it has to say is to be on its way before the next commit begins, so it is called back.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from nexo.engine.supervisor import outcome_of, report

if TYPE_CHECKING:
    from collections.abc import Callable

    Told = Callable[[Any, BaseException | None], None]


class Durable(asyncio.Future[Any]):
    told: Told | None = None

    def answer(self, result: Any, error: BaseException | None = None) -> None:
        """The commit has ended. Nothing that goes wrong here may stop the others' answers."""
        if self.told is not None:
            _, failure = outcome_of(self.told, result, error)
            if failure is not None:
                report("an answer could not be given", failure)
        elif self.done():
            return  # whoever waited has gone
        elif error is None:
            self.set_result(result)
        else:
            self.set_exception(error)


def tell(future: asyncio.Future[Any], told: Told) -> None:
    """Call back with the result or the error. Nobody else may wait for this future."""
    if isinstance(future, Durable) and not future.done():
        future.told = told
    else:

        def done(finished: asyncio.Future[Any]) -> None:
            if not finished.cancelled():  # else the loop is ending
                told(*outcome_of(finished.result))

        future.add_done_callback(done)
