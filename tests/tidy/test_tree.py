"""The tree keeps the house rules, and every check of them can fail.

For each check a small tree is planted that breaks it at a known place, and one that comes close
and is fine.
"""

from pathlib import Path

import pytest

from tests.tidy import checks
from tests.tidy.checks import Check

ROOT = Path(__file__).resolve().parents[2]

ROOM_CARD = (
    '"""A room.\n\nLives here: x.\nMay import: x.\nNever: x.\nEnter at: x.\nTests: x.\n"""\n'
)
FUNCTION_OF_70 = "def long():\n" + "    pass\n" * 69
LINE_OF_100 = "#" * 100
UNFINISHED = "TO" + "DO"
MACHINE_PATH = "/" + "home/someone/nexo"
LOCK = "# made\na==1.0 ; os_name == 'nt' \\\n    --hash=sha256:" + "0" * 64 + "\n    # via b\n"
CATCH_ALL = "try:\n    pass\nexcept Exception:\n    pass\n"
CATCH_ONE_OF = CATCH_ALL.replace("Exception", "(OSError, Exception)")
CLEAN_UP = "try:\n    pass\nexcept BaseException:\n    print()\n    raise\n"

# check, file, content, and the lines found in it
PLANTS: tuple[tuple[Check, str, str, list[int]], ...] = (
    (checks.line_width, "src/nexo/a.py", f"{LINE_OF_100}\n", []),
    (checks.line_width, "src/nexo/a.py", f"\n{LINE_OF_100}#\n", [2]),
    (checks.line_width, "src/nexo/a.py", f"{LINE_OF_100}  # type: ignore[index]\n", []),
    (checks.line_width, "src/nexo/a.py", f"{LINE_OF_100}#  # noqa: S608\n", [1]),
    (checks.line_width, "src/nexo/journal/schema.sql", f"{LINE_OF_100}#\n", [1]),
    (checks.line_width, "Makefile", f"{LINE_OF_100}#\n", [1]),
    (checks.line_width, ".ci/run", f"{LINE_OF_100}#\n", [1]),
    (checks.line_width, "README.md", f"{LINE_OF_100}#\n", []),
    (checks.line_width, ".venv/lib/a.py", f"{LINE_OF_100}#\n", []),
    (checks.function_length, "bench/a.py", FUNCTION_OF_70, []),
    (checks.function_length, "bench/a.py", f"\n{FUNCTION_OF_70}    pass\n", [2]),
    (checks.function_length, "tests/a.py", f"async {FUNCTION_OF_70}    pass\n", [1]),
    (checks.module_length, "src/nexo/a.py", "a = 1\n" * 600, []),
    (checks.module_length, "src/nexo/a.py", "a = 1\n" * 601, [601]),
    (checks.telling_names, "src/nexo/queue.py", "", []),
    (checks.telling_names, "src/nexo/utils.py", "", [1]),
    (checks.telling_names, "src/nexo/_base.py", "", [1]),
    (checks.telling_names, "src/nexo/common/queue.py", "", [1]),
    (checks.telling_names, "tests/unit/test_helpers.py", "", [1]),
    (checks.noun_names, "src/nexo/queue_settings.py", "", []),
    (checks.noun_names, "src/nexo/cli/listing.py", "", []),
    (checks.noun_names, "tests/unit/test_waiting.py", "", []),
    (checks.noun_names, "src/nexo/cli/talking.py", "", [1]),
    (checks.noun_names, "src/nexo/cli/topic_reading.py", "", [1]),
    (checks.noun_names, "src/nexo/cli/held.py", "", [1]),
    (checks.limits, "src/nexo/engine/a.py", "\nWAIT_S = 2 * 60\n", [2]),
    (checks.limits, "src/nexo/doors/a/b.py", "_ROWS_MAX = 5\n", [1]),
    (checks.limits, "src/nexo/vocabulary/limits.py", "WAIT_S = 5.0\n", []),
    (checks.limits, "src/nexo/engine/a.py", "WAIT_S = limits.WAIT_MS / 1000\nROWS = 5\n", []),
    (checks.room_cards, "src/nexo/engine/__init__.py", ROOM_CARD, []),
    (checks.room_cards, "src/nexo/__init__.py", "", [1]),
    (checks.room_cards, "src/nexo/engine/__init__.py", ROOM_CARD.replace("Never", "Ever"), [1]),
    (checks.room_cards, "src/nexo/doors/sqs/__init__.py", '"""A door."""\n', [1]),
    (checks.room_cards, "src/nexo/engine/actor.py", "", [1]),
    (checks.card_imports, "src/nexo/engine/__init__.py", f"{ROOM_CARD}import nexo.machine\n", [9]),
    (checks.card_imports, "src/nexo/engine/__init__.py", f"{ROOM_CARD}import nexo.engine.a\n", []),
    (checks.caught_errors, "src/nexo/a.py", CATCH_ALL.replace("Exception", "OSError"), []),
    (checks.caught_errors, "src/nexo/a.py", CATCH_ALL, [3]),
    (checks.caught_errors, "src/nexo/a.py", CATCH_ALL.replace(" Exception", ""), [3]),
    (checks.caught_errors, "src/nexo/a.py", CATCH_ALL.replace("Ex", "BaseEx"), [3]),
    (checks.caught_errors, "src/nexo/a.py", CATCH_ONE_OF, [3]),
    (checks.caught_errors, "src/nexo/engine/supervisor.py", CATCH_ALL, []),
    (checks.caught_errors, "src/nexo/a.py", CLEAN_UP, []),
    (checks.unfinished_work, "src/nexo/a.py", "mastodon = 1\n", []),
    (checks.unfinished_work, "src/nexo/a.py", f"a = 1\n# {UNFINISHED}: b\n", [2]),
    (checks.unfinished_work, "docs/a.md", f"{UNFINISHED}\n", [1]),
    (checks.machine_paths, "docs/a.md", "GET /root and https://a.b/home/x, ~/home/a\n", []),
    (checks.machine_paths, "docs/a.md", f"see {MACHINE_PATH}\n", [1]),
    (checks.machine_paths, "Makefile", f"A := {MACHINE_PATH}\n", [1]),
    (checks.machine_paths, "scripts/install", f"cd '{MACHINE_PATH}'\n", [1]),
    (checks.links, "docs/a.md", "[a](a.md#x) [b](/docs/a.md) [c](https://x.y) [d](#d)\n", []),
    (checks.links, "docs/a.md", "```\n[a](b.md)\n```\n", []),
    (checks.links, "docs/a.md", "```\n```\n\n[a](../b.md) [b](c.md#d)\n", [4, 4]),
    (checks.decisions, "docs/decisions/0001-one-writer.md", "a\n" * 70, []),
    (checks.decisions, "docs/decisions/README.md", "a\n" * 71, []),
    (checks.decisions, "docs/decisions/0001-one-writer.md", "a\n" * 71, [71]),
    (checks.decisions, "docs/decisions/1-writer.md", "", [1]),
    (checks.decisions, "docs/decisions/0001-One_Writer.md", "", [1]),
    (checks.locks, "requirements/dev.txt", LOCK, []),
    (checks.locks, "requirements/dev.txt", f"--index-url https://a.b/\n{LOCK}", [1]),
    (checks.locks, "requirements/dev.txt", f"{LOCK}b @ https://a.b/c.whl\n", [5]),
    (checks.locks, "requirements/dev.txt", f"{LOCK}c==1.0\n", [5]),
    (checks.make_help, "Makefile", "A := b\ntest: lint ## tests\n$(STAMP):\n\ttouch a\n", []),
    (checks.make_help, "Makefile", "A := b\ntest: lint\n\tpytest\n", [2]),
    (checks.make_mentions, "README.md", "make sure of `cmake all`\n", []),
    (checks.make_mentions, "README.md", "a\n`make fly ARGS=x`\n", [2]),
    (checks.make_mentions, "README.md", "```\nmake fly\n```\n", [2]),
)


@pytest.mark.parametrize("check", checks.CHECKS, ids=lambda check: check.__name__)
def test_tree(check: Check) -> None:
    found = [str(finding) for finding in check(ROOT)]
    assert not found, f"{len(found)} to mend:\n" + "\n".join(found)


@pytest.mark.parametrize(("check", "name", "content", "lines"), PLANTS)
def test_plant(tmp_path: Path, check: Check, name: str, content: str, lines: list[int]) -> None:
    planted = tmp_path / name
    planted.parent.mkdir(parents=True, exist_ok=True)
    planted.write_text(content)
    found = list(check(tmp_path))
    assert [finding.line for finding in found] == lines, found
    for finding in found:
        assert f"{finding.path}:{finding.line}: " in str(finding)
        assert finding.remedy


def test_every_check_has_a_plant_that_breaks_it() -> None:
    assert {check for check, _, _, lines in PLANTS if lines} == set(checks.CHECKS)


def test_decision_numbers_are_taken_once(tmp_path: Path) -> None:
    folder = tmp_path / "docs" / "decisions"
    folder.mkdir(parents=True)
    (folder / "0001-a.md").touch()
    (folder / "0001-b.md").touch()
    (finding,) = checks.decisions(tmp_path)
    assert finding.path == "docs/decisions/0001-b.md"


def test_named_make_targets_exist(tmp_path: Path) -> None:
    (tmp_path / "Makefile").write_text("fly: ## flies\n")
    (tmp_path / "README.md").write_text("`make fly`\n")
    assert not list(checks.make_mentions(tmp_path))
