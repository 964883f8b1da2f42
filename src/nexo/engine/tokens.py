"""The tokens and access keys of a broker: part of its definitions, durable like queues.

Whoever guards the doors adopts them and is told of each change, as everything else when it is on
disk: by the time that a revocation is confirmed it holds, for those who are connected too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nexo.access.tokens import Minted, mint

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from nexo.engine.context import Context
    from nexo.vocabulary.changes import TokenDefined

    Adopt = Callable[[Mapping[str, TokenDefined]], None]


class Tokens:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._adopt: Adopt | None = None
        self._spread: Callable[[], Awaitable[None]] | None = None

    def guard_with(self, adopt: Adopt, spread: Callable[[], Awaitable[None]] | None = None) -> None:
        """Tell the tokens now and whenever they change. `spread` returns once they are known
        wherever they have to be; whoever changed them is answered after that."""
        self._adopt, self._spread = adopt, spread
        self.tell()

    def tell(self) -> None:
        if self._adopt is not None:
            self._adopt(self._context.catalog.catalog.tokens)

    def all(self) -> list[TokenDefined]:
        tokens = self._context.catalog.catalog.tokens
        return [tokens[name] for name in sorted(tokens)]

    async def create(
        self,
        name: str,
        allow: Sequence[str],
        *,
        expires_after_ms: int | None = None,
        aws: bool = False,
    ) -> Minted:
        """Draw a token, or with `aws` an access key. Its secret is in the answer and nowhere
        else."""
        self._context.check_writable()
        now_ms = self._context.clock.wall_ms()
        expires_ms = None if expires_after_ms is None else now_ms + expires_after_ms
        minted = mint(name, allow, now_ms, expires_ms=expires_ms, aws=aws)
        self._context.catalog.catalog.define_token(minted.defined)
        await self._settle()
        return minted

    async def revoke(self, name: str) -> None:
        self._context.check_writable()
        self._context.catalog.catalog.revoke_token(name)
        await self._settle()

    async def _settle(self) -> None:
        try:
            await self._context.catalog.durable()
        finally:
            self.tell()  # also if whoever asked has gone: it will be written all the same
        if self._spread is not None:
            await self._spread()
