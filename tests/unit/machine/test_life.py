"""The table of transitions is what the rules do, and the picture in the documentation is the table.

Every action is tried on a message in every state. What changes must stand in the table, and what
stands in the table must be seen to happen. `python -m tests.unit.machine.test_life` draws the
picture in the documentation anew.
"""

from __future__ import annotations

import re
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from nexo.machine import ack, claims, life, move, purge
from nexo.machine.deadlines import run_due
from nexo.machine.fail import give_back, nack, spare
from nexo.machine.pop import pop
from nexo.vocabulary.errors import NexoError
from nexo.vocabulary.settings import Backoff
from nexo.vocabulary.states import Cause, State
from tests.unit.machine.orders import commit, orders, put, take

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from nexo.machine.queue import Queue
    from nexo.machine.span import Span

PAGE = Path(__file__).resolve().parents[3] / "docs" / "internals" / "life.md"
REDRAW = ".venv/bin/python -m tests.unit.machine.test_life"
STATES = [state for state in State if state is not State.GONE]
LATER = {"visibility_timeout_ms": 60_000, "retransmit_timeout_ms": 60_000}


class Case(NamedTuple):
    """A queue with one message, and what an action on it needs to know."""

    queue: Queue
    lease: int
    picked: list[tuple[int, Span]]


def message_in(state: State, claim_ms: int = 60_000, **settings: Any) -> Case:
    """A queue whose only message, pushed at 1,000, is in a state."""
    queue = orders(**{**LATER, "max_attempts": None, **settings})
    if state is State.SCHEDULED and settings.get("retention_ms"):
        # A push that waits for longer than it is kept is refused; a retry may wait so long.
        put(queue, b"x")
        nack(queue, take(queue).lease, 0, 1, 3_000, delay_ms=4_000)
        return Case(queue, 0, [])
    put(queue, b"x", delay_ms=4_000 if state is State.SCHEDULED else 0)
    lease, picked = 0, []
    if state is State.SENT:
        lease = pop(queue, 1, 1_000).lease
    elif state is State.RECEIVED:
        lease = take(queue).lease
    elif state in (State.CLAIMED, State.SEALED):
        claims.open_claims(queue, "query")
        claims.claim(queue, "query", 1, 0, 1, 1_000, claim_ms)
        lease = queue.claims["query"].batches[1].lease
        if state is State.SEALED:
            claims.seal(queue, "query", 1, 1, 1_000)
    elif state is State.DOOMED:
        claims.open_claims(queue, "query")
        claims.claim(queue, "query", 1, 0, 1, 1_000, claim_ms)
        lease = queue.claims["query"].batches[1].lease
        claims.release(queue, "query", 1_000, dead_letter=True)
    elif state is State.MOVING:
        picked = move.pick(queue, 1)
        lease = picked[0][0]
    commit(queue)
    assert state_of(queue) is state
    return Case(queue, lease, picked)


def state_of(queue: Queue) -> State:
    if not queue.depth:
        return State.GONE
    if queue.scheduled_count:
        return State.SCHEDULED
    if queue.ready:
        return State.READY
    (held,) = queue.leases.values()
    return held[0].state


def claim_of_another(case: Case) -> None:
    claims.open_claims(case.queue, "another")
    claims.claim(case.queue, "another", 1, 0, 1, 1_000, 60_000)


def dead_letter(case: Case) -> None:
    for doomed in case.queue.doomed:
        move.take_out(case.queue, doomed.lease, doomed.span, Cause.DEAD_LETTERED, "", 1_000)


def spare_all(case: Case) -> None:
    for doomed in case.queue.doomed:
        spare(case.queue, doomed, 1_000)


def arrive(case: Case) -> None:
    for lease, span in case.picked:
        move.take_out(case.queue, lease, span, Cause.REDRIVEN, "", 1_000)


def cancel(case: Case) -> None:
    for lease, _ in case.picked:
        move.unpick(case.queue, lease)


class Action(NamedTuple):
    name: str
    do: Callable[[Case], Any]
    settings: Mapping[str, Any] = MappingProxyType({})


WAITING = {"backoff": Backoff(initial_ms=10_000)}
ACTIONS = [
    Action("due", lambda case: run_due(case.queue, 5_000)),
    Action("pop", lambda case: pop(case.queue, 1, 1_000)),
    Action("pop", lambda case: pop(case.queue, 1, 1_000, one_ack=True)),
    Action("claim", claim_of_another),
    Action("retention", lambda case: run_due(case.queue, 6_000), {"retention_ms": 5_000}),
    Action("move", lambda case: move.pick(case.queue, 1)),
    Action("received", lambda case: ack.received(case.queue, case.lease, 0, 1, 1_000)),
    Action("ack", lambda case: ack.ack(case.queue, case.lease, 0, 1, 1_000)),
    Action("extend", lambda case: ack.extend(case.queue, case.lease, 0, 1, 9, 1_000)),
    Action("nack", lambda case: nack(case.queue, case.lease, 0, 1, 1_000)),
    Action("nack", lambda case: nack(case.queue, case.lease, 0, 1, 1_000, 500)),
    Action("give back", lambda case: give_back(case.queue, case.lease, 0, 1, 1_000)),
    *(
        Action(name, lambda case: run_due(case.queue, 1_100), {setting: 100, **more})
        for more in ({}, WAITING)
        for name, setting in (
            ("retransmit timeout", "retransmit_timeout_ms"),
            ("visibility timeout", "visibility_timeout_ms"),
        )
    ),
    Action("claim lapsed", lambda case: run_due(case.queue, 1_100), {"claim_ms": 100}),
    Action(
        "out of attempts",
        lambda case: nack(case.queue, case.lease, 0, 1, 1_000),
        {"max_attempts": 1},
    ),
    Action("seal", lambda case: claims.seal(case.queue, "query", 1, 1, 1_000)),
    Action("claim ack", lambda case: claims.ack_claims(case.queue, "query", 1, 1, 1_000)),
    Action("release", lambda case: claims.release(case.queue, "query", 1_000)),
    Action("release", lambda case: claims.release(case.queue, "query", 1_000, True)),
    Action("dead letter", dead_letter),
    Action("spare", spare_all),
    Action("arrive", arrive),
    Action("cancel", cancel),
]

Step = tuple[str, str, str]


def seen(before: State, action: Action) -> Step | None:
    """What the action did to a message in that state; None if it was refused or did nothing."""
    case = message_in(before, **action.settings)
    try:
        action.do(case)
    except NexoError:
        return None
    after = state_of(case.queue)
    # An extension leaves the state as it is, and is the only step that does.
    changed = after is not before or action.name == "extend"
    return (before.name, action.name, after.name) if changed else None


def table() -> set[Step]:
    """The table with its "or …" written out."""
    steps = set()
    for step in life.TRANSITIONS:
        steps.add((step.before.name, step.action, step.after.name))
        if other := re.fullmatch(r"or ([A-Z]+)", step.note):
            steps.add((step.before.name, step.action, other[1]))
    return steps


@pytest.mark.parametrize("before", STATES, ids=lambda state: state.name)
def test_rules_do_what_the_table_says(before: State) -> None:
    happened = {step for action in ACTIONS if (step := seen(before, action))}
    told = {step for step in table() if step[0] == before.name}
    assert happened == told, (
        f"not in the table: {sorted(happened - told)}; never happens: {sorted(told - happened)}"
    )


def test_every_action_of_the_table_is_tried() -> None:
    assert {step.action for step in life.TRANSITIONS} == {action.name for action in ACTIONS}


def test_rules_ask_the_table_about_every_action() -> None:
    """Each set of states that is made from the table is asked by a rule; only where the place of a
    message says its state there is no question."""
    source = Path(life.__file__).read_text(encoding="utf-8")
    made = re.findall(r"^([A-Z_]+) = states_\w+\(((?:\"[a-z ]+\"(?:, )?)+)\)", source, re.MULTILINE)
    actions = {action for _, listed in made for action in re.findall(r'"([a-z ]+)"', listed)}
    assert actions | life.BY_PLACE == {step.action for step in life.TRANSITIONS}
    rooms = Path(life.__file__).parent
    rules = "".join(p.read_text(encoding="utf-8") for p in rooms.glob("*.py") if p.stem != "life")
    unasked = [name for name, _ in made if not re.search(rf"\blife\.{name}\b", rules)]
    assert not unasked, f"no rule asks {unasked}"


@pytest.mark.parametrize("before", STATES, ids=lambda state: state.name)
def test_purge_ends_every_state(before: State) -> None:
    """It is not in the table: eight more arrows would hide the rest."""
    case = message_in(before)
    purge.purge(case.queue, 1_000)
    assert state_of(case.queue) is State.GONE


def test_picture_of_the_documentation_is_drawn_from_the_table() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page == drawn(page), f"{PAGE.name} shows another picture; `{REDRAW}` draws it anew"


def test_documentation_explains_every_state() -> None:
    page = PAGE.read_text(encoding="utf-8")
    missing = [state.name for state in State if f"| `{state.name}` |" not in page]
    assert not missing, f"{PAGE.name} does not explain {missing}"


def drawn(page: str) -> str:
    """The page with the picture of today's table."""
    fence = re.compile(r"```mermaid\n.*?```", flags=re.DOTALL)
    assert len(fence.findall(page)) == 1, "the page has one picture"
    return fence.sub(lambda _: f"```mermaid\n{life.picture()}```", page)


if __name__ == "__main__":
    PAGE.write_text(drawn(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
