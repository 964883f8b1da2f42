"""`nexo queue search`, `message`, `discard`, `resend`, `redrive` of some, and `nexo why`."""

import nexo as client_library
from tests.client.eventually import eventually


def die(nexo, queue, reasons):
    with client_library.connect(nexo.url) as client:
        made = client.create_queue(queue, max_attempts=1)
        for body, reason in reasons.items():
            made.push(body)
            (message,) = made.pop_batch(1, wait=10.0)
            message.nack(reason=reason)
    return f"{queue}_dlq"


def bodies(nexo, name):
    return [each["body"] for each in nexo("queue", "peek", name, "--json").json()]


def test_find_and_show(nexo, queue):
    dead = die(nexo, queue, {"first": "order 1 is gone", "second": "boom"})
    (found,) = nexo("queue", "search", dead, "fir", "--json").json()
    assert found["body"] == "first"
    assert nexo("queue", "search", dead, "nothing").out == f"No message in {dead} matches\n"
    (other,) = nexo("queue", "search", dead, "--where", "text = 'second'", "--json").json()
    assert other["dead_letter"]["reason"] == "boom"
    shown = nexo("queue", "message", dead, found["id"]).out
    assert found["id"] in shown
    assert "order 1 is gone" in shown

    def kinds():
        told = nexo("queue", "message", dead, found["id"], "--json").json()
        return {each["kind"] for each in told["life"]}

    eventually(lambda: kinds() >= {"pushed", "nacked"})  # what happened is told a little later
    refused = nexo("queue", "search", dead, "--where", "nonsense(", status=2).err
    assert "--where" in refused


def test_why_and_its_actions(nexo, queue):
    dead = die(
        nexo, queue, {"a": "order 1 is gone", "b": "order 2 is gone", "c": "boom", "d": "late"}
    )
    told = nexo("why", queue).out
    assert "order # is gone" in told
    assert "4 dead letters" in told
    groups = nexo("why", dead, "--json").json()
    assert [(each["reason"], each["count"]) for each in groups] == [
        ("order # is gone", 2),
        ("boom", 1),
        ("late", 1),
    ]
    assert groups[0]["example"]["body"] == "a"
    moved = nexo("why", queue, "--redrive", "order # is gone").out
    assert moved == f"Moved 2 messages back to {queue}\n"
    assert bodies(nexo, queue) == ["a", "b"]
    refused = nexo("why", queue, "--discard", "boom", status=2)
    assert "--yes" in refused.err
    gone = nexo("why", queue, "--discard", "boom", "--yes").out
    assert gone == f"Discarded 1 message from {dead}\n"
    assert bodies(nexo, dead) == ["d"]
    assert "nexo why" in nexo("why", queue, "--discard", "boom", "--yes", status=2).err


def test_discard_and_redrive_some(nexo, queue):
    dead = die(nexo, queue, {"a": "x", "b": "x", "c": "y", "d": "y"})
    ids = {each["body"]: each["id"] for each in nexo("queue", "peek", dead, "--json").json()}
    assert "--reason" in nexo("queue", "discard", dead, status=2).err
    done = nexo("queue", "discard", dead, ids["a"], "--yes", "--json").json()
    assert done == {"name": dead, "discarded": 1}
    moved = nexo("queue", "redrive", dead, "--id", ids["b"], "--json").json()
    assert moved == {"name": dead, "moved": 1, "skipped": 0}
    assert nexo("queue", "redrive", dead, "--where", "text = 'c'", "--json").json()["moved"] == 1
    assert bodies(nexo, dead) == ["d"]
    assert "is not a dead-letter queue" in nexo("queue", "redrive", queue).out
    nexo("queue", "purge", queue, "--yes")
    assert nexo("queue", "redrive", queue).out == f"Queue {queue} is empty\n"
    assert "No message" in nexo("queue", "redrive", dead, "--reason", "nothing").out


def test_the_end_of_an_id_is_enough(nexo, queue):
    """Tables in a narrow window show no more of it."""
    dead = die(nexo, queue, {"a": "x", "b": "x"})
    ids = {each["body"]: each["id"] for each in nexo("queue", "peek", dead, "--json").json()}
    short = f"…{ids['a'][-12:]}"
    assert short in nexo("queue", "peek", dead, environment={"COLUMNS": "80"}).out
    assert nexo("queue", "message", dead, short, "--json").json()["body"] == "a"
    assert nexo("queue", "search", dead, "--id", short[1:], "--json").json()[0]["id"] == ids["a"]
    assert nexo("queue", "discard", dead, short, "--yes", "--json").json()["discarded"] == 1
    assert bodies(nexo, dead) == ["b"]
    gone = nexo("queue", "message", dead, short, status=1).err
    assert "ends with" in gone
    assert "whole ID" in gone


def test_resend(nexo, queue):
    dead = die(nexo, queue, {"broken": "x"})
    (seen,) = nexo("queue", "peek", dead, "--json").json()
    (nexo.folder / "fixed.json").write_text('{"fixed": true}')
    more = ("--set-attribute", "by=ann", "--body", "@fixed.json")
    sent = nexo("queue", "resend", dead, seen["id"], *more, "--json").json()
    (fresh,) = nexo("queue", "peek", queue, "--json").json()
    assert (fresh["id"], fresh["body"]) == (sent["id"], '{"fixed": true}')
    assert fresh["attributes"] == {"by": "ann", "nexo.original_id": seen["id"]}
    assert bodies(nexo, dead) == []
    assert "no message" in nexo("queue", "resend", dead, seen["id"], status=1).err
