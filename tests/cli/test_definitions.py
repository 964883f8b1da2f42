"""`nexo export` and `nexo import` against a running broker."""

import json
from pathlib import Path

from tests.cli.commands import Nexo

DEFINITIONS = {
    "queues": [{"name": "told", "settings": {"max_attempts": 7, "tags": {"a": "b"}}}],
    "topics": [{"name": "told-news"}],
    "bindings": [{"topic": "told-news", "queue": "told", "where": {"x": "y"}}],
}


def test_out_and_in_again(nexo: Nexo, tmp_path: Path) -> None:
    (tmp_path / "wanted.json").write_text(json.dumps(DEFINITIONS))
    planned = nexo("import", "wanted.json", "--dry-run")
    assert planned.lines == [
        "created   queue told",
        "created   topic told-news",
        "created   binding told-news told",
        "3 created, 0 changed, 0 unchanged (dry run, nothing changed)",
    ]
    nexo("queue", "info", "told", status=1)
    assert nexo("import", "wanted.json").lines[:3] == planned.lines[:3]
    assert nexo("queue", "info", "told", "--json").json()["settings"]["max_attempts"] == 7
    done = nexo("export", "got.json")
    assert done.lines == ["Exported 1 queue, 1 topic, 1 binding to got.json"]
    assert json.loads((tmp_path / "got.json").read_text()) == nexo("export").json()
    again = nexo("import", "got.json", "--json").json()
    assert {each["outcome"] for each in again["definitions"]} == {"unchanged"}
    assert again["dry_run"] is False
    nexo("queue", "edit", "told", "--max-attempts", "8")
    text = (tmp_path / "got.json").read_text()
    assert nexo("import", "-", stdin=text).lines[0] == "changed   queue told (max_attempts)"


def test_a_file_that_is_there_is_not_replaced_unasked(nexo: Nexo, tmp_path: Path) -> None:
    (tmp_path / "kept.json").write_text("mine")
    refused = nexo("export", "kept.json", status=2)
    assert "--yes" in refused.err
    assert (tmp_path / "kept.json").read_text() == "mine"
    summary = nexo("export", "kept.json", "--yes", "--json").json()
    assert summary["file"] == "kept.json"
    assert len(json.loads((tmp_path / "kept.json").read_text())["queues"]) == summary["queues"]


def test_wrong_documents_change_nothing(nexo: Nexo, tmp_path: Path) -> None:
    before = nexo("export").json()
    for text, told in (
        ("{", "truncated"),
        ('{"queues": [{"name": "wrong-1", "settings": {"speed": 1}}]}', "speed"),
        ('{"queues": [{"name": "wrong-1"}, {"name": "wrong 2"}]}', "wrong 2"),
    ):
        (tmp_path / "wrong.json").write_text(text)
        assert told in nexo("import", "wrong.json", status=2).err
    assert "cannot be read" in nexo("import", "not-there.json", status=2).err
    missing = '{"bindings": [{"topic": "no-topic", "queue": "no-queue"}]}'
    assert "no-topic" in nexo("import", "-", stdin=missing, status=1).err
    assert nexo("export").json() == before


def test_no_broker(alone: Nexo) -> None:
    alone("export", status=3)
    alone("import", "-", stdin="{}", status=3)


def test_a_backup_and_its_restore_count_the_same(nexo: Nexo, queue: str) -> None:
    """Of topics and events there is more in the file, which nobody asked about."""
    nexo("topic", "publish", f"{queue}-news", "hello", "--create")
    nexo("push", queue, "--create", stdin="one\ntwo\nthree\n")
    nexo("pop", queue, "--no-ack")
    nexo("pop", queue)
    saved = nexo("backup", "saved.nexo", "--json").json()
    restored = nexo("restore", "saved.nexo", "--data", "again", "--json").json()
    assert restored["messages"] == saved["messages"] >= 2
    told = nexo("restore", "saved.nexo", "--data", "once-more").out
    assert told.startswith(f"Restored {saved['messages']} messages in ")
    assert f"Backed up about {saved['messages']} messages in " in nexo("backup", "more.nexo").out
