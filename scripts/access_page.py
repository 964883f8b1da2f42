"""The tables of `docs/access.md`, made from the table of operations.

python -m scripts.access_page docs/access.md
"""

from __future__ import annotations

import sys
from itertools import groupby
from pathlib import Path

from nexo.access.operations import OPERATIONS, Need, On, Operation
from nexo.access.permissions import ANY, EVERYTHING, Action

REGENERATE = "python -m scripts.access_page docs/access.md"
BEGIN = f"<!-- Made from the code by `{REGENERATE}`; a test compares them. -->"
END = "<!-- End of what is made. -->"

_WORDS = {  # for operations whose names begin or end so: to their users they are one thing
    "claim": "the claims of Spark",
    "snapshot": "Spark's batch reads",
    "redrive": "redrive",
    "read": "read, subscribe",
    "backup": "backups",
    "token": "tokens",
    "tokens": "tokens",
    "definitions": "definitions",
    "audit": "the audit log",
}
_NAMES = (
    "The names are those of [the RPC calls](reference/rpc-protocol.md#calls) and of the audit log; "
    "`compare_definitions` is an import with `--dry-run`."
)
_PLAIN = ("_queue", "_topic")  # the column says which


def with_tables(page: str) -> str:
    """The page with its tables as the code has them."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{tables()}{END}{after}"


def tables() -> str:
    lines = [
        "| action | on a queue | on a topic | on the broker |",
        "|---|---|---|---|",
        *[_action_row(action) for action in Action],
        f"| `{EVERYTHING}` | all of them | all of them | `admin`, only as `*:*` |",
        "",
        "### What each operation needs",
        _NAMES,
        "",
        "| operation | needs | audited |",
        "|---|---|---|",
        *[_operation_row(list(rows)) for _, rows in groupby(OPERATIONS.values(), _rule)],
    ]
    return "\n".join(lines) + "\n"


def _action_row(action: Action) -> str:
    allowed: dict[str, list[str]] = {"queue": [], "topic": [], "broker": []}
    for operation in OPERATIONS.values():
        for need in operation.needs[:1]:  # the first is what it is about, the others come besides
            if _counts(action, need):
                place = {On.QUEUE: "queue", On.TOPIC: "topic"}.get(need.on, "broker")
                word = _word(operation)
                if word not in allowed[place]:
                    allowed[place].append(word)
    return f"| `{action}` | {' | '.join(', '.join(words) for words in allowed.values())} |"


def _counts(action: Action, need: Need) -> bool:
    """Whether an operation stands in the row of an action. What any of them allows stands in none,
    and what `manage` allows too in its row alone; figures of the broker have a name of their own.
    """
    if need.actions == ANY or need.on is On.METRICS:
        return False
    if Action.MANAGE in need.actions and action is not Action.MANAGE:
        return False
    return action in need.actions


def _word(operation: Operation) -> str:
    name = operation.name
    for part in (name.partition("_")[0], name.rpartition("_")[2]):
        if part in _WORDS:
            return _WORDS[part]
    for suffix in _PLAIN:
        name = name.removesuffix(suffix)
    return name.replace("_", " ")


def _rule(operation: Operation) -> tuple[tuple[Need, ...], bool]:
    return operation.needs, operation.is_audited


def _operation_row(rows: list[Operation]) -> str:
    names = ", ".join(f"`{row.name}`" for row in rows)
    needs = ", and ".join(_need(need) for need in rows[0].needs)
    shown = needs or "nothing: the answer holds only what the token may see"
    return f"| {names} | {shown} | {'yes' if rows[0].is_audited else ''} |"


def _need(need: Need) -> str:
    if need.actions == ANY:
        return f"any action on {need.on}"
    *others, last = (f"`{action}`" for action in Action if action in need.actions)
    actions = f"{', '.join(others)} or {last}" if others else last
    return f"{actions} on {need.on}"


if __name__ == "__main__":
    page = Path(sys.argv[1])
    page.write_text(with_tables(page.read_text(encoding="utf-8")), encoding="utf-8")
