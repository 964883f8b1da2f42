"""What a handler raises is an outcome of the work, never the end of the worker."""

from __future__ import annotations

from typing import Self


class Caught:
    """For the length of a `with` block; `error` is what was raised in it. Only what stops a whole
    program, such as Ctrl-C, goes on: `sys.exit()` in a handler is a failure like any other."""

    error: BaseException | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: object, error: BaseException | None, trace: object) -> bool:
        if isinstance(error, (Exception, SystemExit)):
            self.error = error
            return True
        return False
