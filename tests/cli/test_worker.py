"""`nexo worker`: the installed command with handlers in files, as a user has them."""

import json
import os
import pty
import select
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.cli.commands import NEXO, TIME_LIMIT_S, Nexo

APP = '''
import asyncio, os, time
from pathlib import Path

def note(event, context):
    """Which bodies came together."""
    with open("noted", "a") as file:
        file.write(" ".join(each["body"] for each in event["Records"]) + "\\n")

def fail(event, context):
    note(event, context)
    raise ValueError("no such order")

def fail_some(event, context):
    note(event, context)
    bad = [each["messageId"] for each in event["Records"] if each["body"].startswith("bad")]
    return {"batchItemFailures": [{"itemIdentifier": each} for each in bad]}

async def note_later(event, context):
    await asyncio.sleep(0.01)
    note(event, context)

def hang(event, context):
    note(event, context)
    time.sleep(60)

def until_told(event, context):
    note(event, context)
    while not Path("go").exists():
        time.sleep(0.01)

def chatter(event, context):
    print("hello from", context.function_name)

number = 7
'''


@pytest.fixture
def folder(nexo: Nexo) -> Path:
    (nexo.folder / "app.py").write_text(APP)
    return nexo.folder


def noted(folder: Path) -> list[str]:
    path = folder / "noted"
    return path.read_text().splitlines() if path.exists() else []


def wait_until(is_so) -> None:
    give_up = time.monotonic() + TIME_LIMIT_S
    while not is_so():
        assert time.monotonic() < give_up
        time.sleep(0.02)


def push(nexo, queue, *bodies):
    nexo("push", queue, "--create", stdin="\n".join(bodies))


def info(nexo, queue):
    return nexo("queue", "info", queue, "--json").json()


def reasons(nexo, queue):
    letters = nexo("queue", "peek", f"{queue}_dlq", "--json").json()
    return {each["body"]: each["dead_letter"]["reason"] for each in letters}


def test_it_works_off_a_queue(nexo, queue, folder):
    push(nexo, queue, *map(str, range(12)))
    done = nexo("worker", "app:note", "--queue", queue, "--idle", "2s", "--json")
    told = done.json()
    assert (told["handled"], told["failed"], told["lost"]) == (12, 0, 0)
    assert (told["queue"], told["function"]) == (queue, "app.note")
    assert " ".join(noted(folder)).split() == [str(number) for number in range(12)]
    assert max(len(line.split()) for line in noted(folder)) <= 10
    logged = [json.loads(line) for line in done.err.splitlines()]
    assert [line["message"] for line in logged] == ["working", "stopped"]
    assert info(nexo, queue)["depth"] == 0


def test_batches_and_slots(nexo, queue, folder):
    push(nexo, queue, *map(str, range(300)))
    arguments = ["--batch-size", "50", "--concurrency", "3", "--idle", "2s"]
    told = nexo("worker", "app:note", "--queue", queue, *arguments)
    assert told.out.startswith("Handled 300 messages in ")
    assert max(len(line.split()) for line in noted(folder)) <= 50
    assert sorted(map(int, " ".join(noted(folder)).split())) == list(range(300))


def test_a_handler_that_raises(nexo, queue, folder):
    nexo("queue", "create", queue, "--max-attempts", "2")
    push(nexo, queue, "a")
    done = nexo_without_a_look(nexo, "app:fail", queue)
    assert noted(folder) == ["a", "a"]
    assert reasons(nexo, queue) == {"a": "ValueError: no such order"}
    logged = [json.loads(line) for line in done.stderr.splitlines()]
    raised = [line for line in logged if line["message"] == "the handler raised"]
    assert len(raised) == 2
    assert "ValueError: no such order" in raised[0]["traceback"]
    assert json.loads(done.stdout)["failed"] == 2


def nexo_without_a_look(nexo, handler, queue, *arguments):
    """Run it without the check that no traceback is shown: here the handler's is."""
    return subprocess.run(
        [NEXO, "worker", handler, "--queue", queue, "--idle", "2s", "--json", *arguments],
        capture_output=True,
        text=True,
        cwd=nexo.folder,
        env=nexo.environment(),
        timeout=TIME_LIMIT_S,
        check=True,
    )


def test_some_of_a_batch_fail(nexo, queue, folder):
    nexo("queue", "create", queue, "--max-attempts", "2")
    push(nexo, queue, "good", "bad one", "fine")
    told = nexo("worker", "app:fail_some", "--queue", queue, "--idle", "2s", "--json").json()
    assert (told["handled"], told["failed"]) == (2, 2)
    assert noted(folder)[-1] == "bad one"
    assert reasons(nexo, queue) == {"bad one": "the handler listed it in batchItemFailures"}
    assert info(nexo, queue)["acked"] == 2


def test_a_coroutine(nexo, queue, folder):
    push(nexo, queue, "a", "b")
    nexo("worker", "app:note_later", "--queue", queue, "--idle", "2s")
    assert " ".join(noted(folder)) == "a b"


@pytest.mark.parametrize("more", [(), ("--processes",)], ids=["thread", "process"])
def test_a_timeout(nexo, queue, folder, more):
    nexo("queue", "create", queue, "--max-attempts", "1")
    push(nexo, queue, "a")
    arguments = ["--timeout", "2s", "--idle", "2s", "--json", *more]
    told = nexo("worker", "app:hang", "--queue", queue, *arguments).json()
    assert told["failed"] == 1
    assert noted(folder) == ["a"]
    assert reasons(nexo, queue) == {"a": "timed out after 2 s"}


@pytest.mark.parametrize("slots", [1, 2])
def test_fifo(nexo, queue, folder, slots):
    queue = f"{queue}.fifo"
    nexo("queue", "create", queue, "--fifo", "--max-attempts", "2")
    for body in ("1", "bad", "3"):
        nexo("push", queue, body, "--group-id", "g")
    arguments = ["--concurrency", str(slots), "--idle", "2s", "--json"]
    told = nexo("worker", "app:fail_some", "--queue", queue, *arguments).json()
    assert (told["handled"], told["failed"], told["lost"]) == (2, 2, 0)
    seen = " ".join(noted(folder)).split()
    assert (seen[0], seen[-1]) == ("1", "3")
    if slots == 1:  # two share the messages by who subscribes first
        assert told["returned"] > 0
        assert noted(folder)[0] == "1 bad 3"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("more", [(), ("--processes",)], ids=["thread", "process"])
def test_a_signal_finishes_what_runs(nexo, queue, folder, number, more):
    push(nexo, queue, *map(str, range(6)))
    arguments = ["--batch-size", "2", "--json", *more]
    process = nexo.start("worker", "app:until_told", "--queue", queue, *arguments)
    try:
        wait_until(lambda: noted(folder) == ["0 1"])
        process.send_signal(number)
        wait_until(lambda: info(nexo, queue)["ready"] == 4)  # what was prefetched went back
        assert process.poll() is None, "it did not wait for its handler"
        (folder / "go").touch()
        out, err = process.communicate(timeout=TIME_LIMIT_S)
    finally:
        process.kill()
    assert process.returncode == 0, err
    assert json.loads(out)["handled"] == 2
    told = info(nexo, queue)
    assert (told["acked"], told["ready"], told["in_flight"]) == (2, 4, 0)


def test_a_second_signal_ends_it_at_once(nexo, queue, folder):
    push(nexo, queue, "a")
    process = nexo.start("worker", "app:until_told", "--queue", queue)
    try:
        wait_until(lambda: noted(folder) == ["a"])
        process.send_signal(signal.SIGINT)
        wait_until(lambda: info(nexo, queue)["consumers"] == 0)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=TIME_LIMIT_S)
    finally:
        process.kill()
    assert process.returncode == 130
    wait_until(lambda: info(nexo, queue)["ready"] == 1)


def test_a_killed_worker_loses_nothing(nexo, queue, folder):
    push(nexo, queue, "a", "b")
    process = nexo.start("worker", "app:until_told", "--queue", queue)
    wait_until(lambda: " ".join(noted(folder)) == "a b")
    process.kill()
    process.communicate()
    (folder / "noted").unlink()
    told = nexo("worker", "app:note", "--queue", queue, "--idle", "2s", "--json").json()
    assert told["handled"] == 2
    assert " ".join(noted(folder)) == "a b"
    assert info(nexo, queue)["depth"] == 0


@pytest.mark.parametrize(
    ("handler", "told"),
    [
        ("app:notte", "there is no 'notte' in app: did you mean note?"),
        ("nowhere:handler", "there is no module 'nowhere'"),
        ("app.note", "write MODULE:HANDLER"),
        ("app:number", "is not a function but int"),
        ("broken:handler", "importing broken failed: ZeroDivisionError"),
        ("missing:handler", "importing missing failed: ModuleNotFoundError"),
        ("app:os.getpid", "cannot be called with (event, context)"),
    ],
)
def test_a_wrong_handler(alone, handler, told):
    (alone.folder / "app.py").write_text(APP)
    (alone.folder / "broken.py").write_text("1 / 0")
    (alone.folder / "missing.py").write_text("import not_installed")
    shown = alone("worker", handler, "--queue", "q", status=2).err
    assert told in shown
    assert len(shown.splitlines()) == 1


def test_the_queue_must_be_there(nexo, queue, folder):
    assert "there is no queue" in nexo("worker", "app:note", "--queue", queue, status=1).err
    nexo("worker", "app:note", "--queue", queue, "--create", "--idle", "100ms")
    assert info(nexo, queue)["depth"] == 0


def test_what_a_handler_prints_and_a_live_line(nexo, queue, folder):
    """In a terminal; standard output goes elsewhere and has only what the handler printed."""
    push(nexo, queue, "a")
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [NEXO, "worker", "app:chatter", "--queue", queue, "--idle", "2s"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=theirs,
        text=True,
        cwd=nexo.folder,
        env=nexo.environment({"TERM": "xterm", "COLUMNS": "120"}),
    )
    os.close(theirs)
    shown = b""
    try:
        while select.select([ours], [], [], TIME_LIMIT_S)[0]:
            try:
                shown += os.read(ours, 65_536)
            except OSError:  # the other side is closed
                break
        out, _ = process.communicate(timeout=TIME_LIMIT_S)
    finally:
        process.kill()
        os.close(ours)
    assert process.returncode == 0
    assert "1 handled" in shown.decode()
    assert "in flight" in shown.decode()
    assert out.splitlines()[0] == "hello from app.chatter"
    assert out.splitlines()[1].startswith("Handled 1 message in ")


def test_several_queues(nexo, queue, folder):
    nexo("push", "orders", "--create", "a")
    nexo("push", "returns", "--create", "b")
    done = nexo(
        "worker", "app:note", "--queue", "orders", "--queue", "returns", "--idle", "2s", "--json"
    ).json()
    assert (done["queue"], done["handled"], done["batches"]) == ("orders, returns", 2, 2)
    assert sorted(noted(folder)) == ["a", "b"]
    for name in ("orders", "returns"):
        assert nexo("queue", "info", name, "--json").json()["depth"] == 0


def test_it_starts_again_when_its_file_changes(nexo, queue, folder):
    def await_notes(count: int) -> None:
        ends = time.monotonic() + TIME_LIMIT_S
        while not (folder / "noted").exists() or len(noted(folder)) < count:
            assert time.monotonic() < ends, noted(folder)
            time.sleep(0.02)

    nexo("push", "orders", "--create", "one")
    running = nexo.start("worker", "app:note", "--queue", "orders", "--reload")
    try:
        await_notes(1)
        (folder / "app.py").write_text("def note(event, context)\n")  # it cannot be imported
        wait_until(lambda: info(nexo, "orders")["consumers"] == 0)
        nexo("push", "orders", "two")
        assert running.poll() is None
        (folder / "app.py").write_text(APP.replace('" ".join(', '"new " + " ".join('))
        await_notes(2)
        assert noted(folder) == ["one", "new two"]
        running.send_signal(signal.SIGTERM)
        _, err = running.communicate(timeout=TIME_LIMIT_S)
        assert running.returncode == 0
        assert "app.py changed, restarting" in err
    finally:
        running.kill()
        running.communicate()
