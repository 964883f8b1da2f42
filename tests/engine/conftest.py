"""Asynchronous tests of this folder run in virtual time, and their rig is audited at the end."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from nexo.vocabulary.settings import TopicSettings
from tests.engine.rig import Rig
from tests.engine.virtual_time import run


@pytest.fixture
def rig() -> Rig:
    return Rig()


@pytest.fixture
def other() -> Rig:
    """The rig of another shard."""
    return Rig()


@pytest.fixture
def telling(rig: Rig) -> Rig:
    """A rig whose broker tells the life of its messages."""
    rig.events = TopicSettings(retention_ms=24 * 3_600_000)
    return rig


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    given = pyfuncitem.funcargs
    wanted = {name: given[name] for name in pyfuncitem._fixtureinfo.argnames}
    run(_tested(pyfuncitem.obj, wanted))
    return True


async def _tested(test: Any, given: dict[str, Any]) -> None:
    rigs = [each for each in given.values() if isinstance(each, Rig)]
    try:
        await test(**given)
    except BaseException:
        for rig in rigs:
            rig.must_audit = False  # the test has failed: one failure is enough
            rig.journal.is_cut = True
        raise
    finally:
        for rig in rigs:
            await rig.stop()
