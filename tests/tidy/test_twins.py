"""The blocking client is what `scripts/twins.py` makes of the asyncio one, and that can fail."""

from pathlib import Path

import pytest

from scripts import twins

# source, and its blocking half before it is formatted
PLANTS = (
    ("async def push(): return await run()\n", "def push(): return run()\n"),
    ("async with a, b as c:\n    pass\n", "with a, b as c:\n    pass\n"),
    ("async def __aenter__(self): ...\n", "def __enter__(self): ...\n"),
    ("from nexo.client.aio import AsyncQueue\n", "from nexo.client.blocking import Queue\n"),
    ("asynchronous = Asynchronous(awaited)\n", "asynchronous = Asynchronous(awaited)\n"),
    ('"""Any number of tasks of `AsyncQueue`."""\n', '"""Any number of threads of `Queue`."""\n'),
    ('"""As an asyncio client: `async with`."""\n', '"""As a blocking client: `with`."""\n'),
    ("a = 1  # see AsyncQueue — for tasks\n", "a = 1  # see Queue — for threads\n"),
    ('a = "tasks", f"{AsyncQueue}"\n', 'a = "tasks", f"{AsyncQueue}"\n'),
    ('"""ä"""; b = await c\n', '"""ä"""; b = c\n'),
)


@pytest.mark.parametrize(("source", "blocking"), PLANTS)
def test_translation(source: str, blocking: str) -> None:
    assert twins.translated(source) == blocking


def test_twins_are_up_to_date() -> None:
    stale = [str(path) for path in twins.outdated()]
    assert not stale, f"run python scripts/twins.py: {stale}"


def test_generated_files_say_so() -> None:
    for name in twins.SOURCES:
        first = twins.generated(name).splitlines()[0]
        assert first.startswith(f"# Generated from src/nexo/client/aio/{name}.py")


def test_what_is_not_up_to_date_is_found(tmp_path: Path) -> None:
    client = tmp_path / twins.CLIENT
    for folder in ("aio", "blocking"):
        (client / folder).mkdir(parents=True)
    for name in twins.SOURCES:
        (client / "aio" / f"{name}.py").write_text(f"async def {name}(): ...\n")
        (client / "blocking" / f"{name}.py").write_text(twins.generated(name, tmp_path))
    assert not twins.outdated(tmp_path)

    (client / "aio" / "queue.py").write_text("async def other(): ...\n")
    (client / "blocking" / "topic.py").unlink()
    found = {path.stem for path in twins.outdated(tmp_path)}
    assert found == {"queue", "topic"}


def test_check_fails(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert twins.main(["--check"]) == 0
    monkeypatch.setattr(twins, "outdated", lambda: [Path("blocking/queue.py")])
    assert twins.main(["--check"]) == 1
    assert "blocking/queue.py" in capsys.readouterr().out
