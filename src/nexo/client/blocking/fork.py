"""After a fork, the child's connections begin anew: the sockets and answers are the parent's."""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class Forked(Protocol):
    def forget_parent(self) -> None: ...


_alive: weakref.WeakSet[Forked] = weakref.WeakSet()


def watch(connection: Forked) -> None:
    _alive.add(connection)


def _after_fork() -> None:
    for connection in list(_alive):
        connection.forget_parent()


if hasattr(os, "register_at_fork"):  # not where there is no fork
    os.register_at_fork(after_in_child=_after_fork)
