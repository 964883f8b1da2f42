"""What a handler raises is an outcome of the work, never the end of the worker."""

from __future__ import annotations

from typing import Self


class Caught:
    """For the length of a `with` block; `error` is what was raised in it, be it `sys.exit()` or the
    panic of an extension. Only what is named here goes on: what others raise to stop this."""

    error: BaseException | None = None

    def __init__(self, *goes_on: type[BaseException]) -> None:
        self._goes_on = goes_on

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: object, error: BaseException | None, trace: object) -> bool:
        if error is None or isinstance(error, self._goes_on):
            return False
        self.error = error
        return True
