"""The list of who uses which limit is complete, and limits are put back."""

from __future__ import annotations

import importlib
import pkgutil
from random import Random

import pytest

import nexo
from nexo.simulation import squeeze
from nexo.vocabulary import limits

ROOMS = ("nexo.engine.", "nexo.journal.", "nexo.machine.")


def modules_with(name: str) -> set[str]:
    names = [each.name for each in pkgutil.walk_packages(nexo.__path__, "nexo.")]
    return {
        each
        for each in names
        if each.startswith(ROOMS) and hasattr(importlib.import_module(each), name)
    }


@pytest.mark.parametrize("name", squeeze.CHOICES)
def test_every_user_of_a_limit_is_listed(name: str) -> None:
    assert modules_with(name) == set(squeeze.USERS.get(name, ()))


def test_limits_are_put_back() -> None:
    before = {name: getattr(limits, name) for name in squeeze.CHOICES}
    drawn = squeeze.draw(Random(1))
    with squeeze.squeezed(drawn):
        assert {name: getattr(limits, name) for name in drawn} == drawn
    assert {name: getattr(limits, name) for name in before} == before
    for name, users in squeeze.USERS.items():
        for user in users:
            assert getattr(importlib.import_module(user), name) == before[name]
