"""A caller: who asks, and what they may. Every door holds one for each of its clients."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nexo.access.permissions import ANY, READ, Action, Permissions, parse_permission
from nexo.vocabulary.errors import Forbidden, Unauthorized
from nexo.vocabulary.limits import ACCESS_DECISIONS_MAX, ACCESS_NAME_CHARS_REMEMBERED
from nexo.vocabulary.names import EVENTS_TOPIC, is_events

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from nexo.vocabulary.changes import TokenDefined


class Caller:
    """`is_bound` is the one thing that the hot path looks at: where it is false, anyone may do
    everything. What a token allows never changes, so a decision holds as long as the caller."""

    __slots__ = (
        "_decisions",
        "_on_end",
        "_permissions",
        "ending",
        "expires_ms",
        "is_bound",
        "name",
    )

    def __init__(
        self, name: str, permissions: Permissions | None, expires_ms: int | None = None
    ) -> None:
        self.name = name
        self.is_bound = permissions is not None
        self.expires_ms = expires_ms
        self.ending: Unauthorized | None = None  # why this caller may nothing any more
        self._permissions = permissions
        self._decisions: dict[tuple[Action, str], bool] = {}
        self._on_end: dict[Callable[[Unauthorized], None], None] = {}

    def may(self, action: Action, name: str) -> bool:
        """Whether the caller may do this with the queue or topic of this name."""
        if self._permissions is None:
            return True
        if self.ending is not None:
            return False
        key = (action, name)
        decided = self._decisions.get(key)
        if decided is None:
            decided = self._permissions.allow(action, name)
            if not decided and is_events(name):  # those of each shard are parts of it
                decided = self._permissions.allow(action, EVENTS_TOPIC)
            if len(name) <= ACCESS_NAME_CHARS_REMEMBERED:
                if len(self._decisions) >= ACCESS_DECISIONS_MAX:
                    self._decisions.clear()
                self._decisions[key] = decided
        return decided

    def may_any(self, actions: Iterable[Action], name: str) -> bool:
        return any(self.may(action, name) for action in actions)

    def may_read(self, topic: str) -> bool:
        return self.may_any(READ, topic)

    def knows(self, name: str) -> bool:
        """Whether the caller may do anything at all with it: then it is no secret to them."""
        return self.may_any(ANY, name)

    def check(self, action: Action, name: str) -> None:
        """Raise unless the caller may do this."""
        if not self.may(action, name):
            raise self._refusal(action, name)

    def check_any(self, actions: Iterable[Action], name: str) -> None:
        """Raise unless the caller may do one of these."""
        wanted = list(actions)
        if not self.may_any(wanted, name):
            raise self._refusal(" or ".join(sorted(wanted)), name)

    def check_push(self, name: str) -> None:
        self.check_any((Action.PUSH,), name)

    def check_admin(self) -> None:
        if self._permissions is not None and (self.ending or not self._permissions.is_admin):
            raise self._refusal(Action.ADMIN, "*")

    def check_live(self) -> None:
        """Raise if the token was revoked or has expired in the meantime."""
        if self.ending is not None:
            raise self.ending.anew()

    def when_ended(self, tell: Callable[[Unauthorized], None]) -> None:
        """Be told at once when the caller may nothing any more."""
        self._on_end[tell] = None

    def forget(self, tell: Callable[[Unauthorized], None]) -> None:
        self._on_end.pop(tell, None)

    def end(self, reason: Unauthorized) -> None:
        """From now on everything is refused, and whoever holds something open is told."""
        if self.ending is None:
            self.ending = reason
            told, self._on_end = self._on_end, {}
            for tell in told:
                tell(reason)

    def _refusal(self, action: str, name: str) -> Unauthorized | Forbidden:
        if self.ending is not None:
            return self.ending.anew()
        return Forbidden(
            f"token {self.name!r} lacks the permission {action} on {name!r:.100}",
            f"it needs a permission such as '{name:.80}:{action}'".replace(" or ", ","),
        )

    def __repr__(self) -> str:
        return f"Caller({self.name!r})"


ANYONE = Caller("anyone", None)  # in development mode


def caller_of(defined: TokenDefined) -> Caller:
    permissions = Permissions(parse_permission(text) for text in defined.allow)
    return Caller(defined.name, permissions, defined.expires_ms)
