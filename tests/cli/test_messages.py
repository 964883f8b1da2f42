"""`nexo push`, `pop`, `produce` and `consume`, against a running broker."""

import json
import signal
import time


def test_push_and_pop_one(nexo, queue):
    (message_id,) = nexo("push", queue, "hello", "--create").lines
    (popped,) = nexo("pop", queue, "--json").json()
    assert popped["id"] == message_id
    assert popped["queue"] == queue
    assert (popped["body"], popped["text"]) == ("hello", "hello")
    assert (popped["attempts"], popped["priority"]) == (1, 0)
    assert popped["created_at"].endswith("Z")
    assert popped["dead_letter"] is None
    assert nexo("pop", queue).lines == []
    assert nexo("pop", queue, "--json").json() == []


def test_push_needs_the_queue(nexo, queue):
    refused = nexo("push", f"new-{queue}-of-this-test", "hello", status=1)
    assert "create" in refused.err
    assert nexo("push", queue, "hello", "--create", "--json").json().keys() == {"id"}
    nexo("push", queue, "hello")


def test_push_with_everything(nexo, queue):
    nexo("push", queue, "low", "--create")
    arguments = ["--priority", "9", "--attribute", "a=1", "--attribute", "b=x=y"]
    nexo("push", queue, '{"id": 1}', *arguments, "--group-id", "g")
    (first,) = nexo("pop", queue, "--json").json()
    assert (first["body"], first["priority"]) == ('{"id": 1}', 9)
    assert first["attributes"] == {"a": "1", "b": "x=y"}
    assert first["group_id"] == "g"
    assert "name=value" in nexo("push", queue, "x", "--attribute", "nothing", status=2).err


def test_a_delay(nexo, queue):
    nexo("push", queue, "later", "--delay", "300ms", "--create")
    assert nexo("pop", queue, "--wait", "5").lines == ["later"]


def test_deduplication(nexo, queue):
    nexo("queue", "create", queue, "--deduplication", "id")
    first = nexo("push", queue, "a", "--deduplication-id", "x").lines
    assert nexo("push", queue, "b", "--deduplication-id", "x").lines == first
    assert nexo("pop", queue, "--max", "9").lines == ["a"]


def test_lines_from_standard_input(nexo, queue):
    lines = [f"line {number} é" for number in range(2_500)]
    ids = nexo("push", queue, "--create", stdin="\n".join(lines)).lines
    assert len(set(ids)) == 2_500
    assert nexo("pop", queue, "--max", "10000").lines == lines
    told = nexo("push", queue, "--json", stdin="a\n\nb\n").lines
    assert [json.loads(line).keys() for line in told] == [{"id"}] * 3
    assert nexo("pop", queue, "--max", "9").lines == ["a", "", "b"]
    assert nexo("push", queue, stdin="").lines == []


def test_no_ack_leaves_it_in_flight(nexo, queue):
    nexo("push", queue, "again", "--create")
    arguments = ["--no-ack", "--visibility-timeout", "300ms", "--json"]
    (first,) = nexo("pop", queue, *arguments).json()
    (second,) = nexo("pop", queue, "--wait", "5", "--json").json()
    assert second["id"] == first["id"]
    assert second["attempts"] == 2


def test_a_body_that_is_no_text(nexo, queue, broker):
    import nexo as client_package

    with client_package.connect(broker.url) as client:
        client.queue(queue, create=True).push(b"\xff\xfe\x00")
    (popped,) = nexo("pop", queue, "--json").json()
    assert (popped["body"], popped["body_encoding"], popped["text"]) == ("//4A", "base64", None)


def test_a_message_that_is_too_large(nexo, queue):
    nexo("queue", "create", queue, "--max-message-bytes", "10")
    assert "10" in nexo("push", queue, "x" * 11, status=1).err


def test_produce_and_consume(nexo, queue):
    produced = nexo("produce", queue, "--count", "5000", "--json").json()
    assert produced["pushed"] == 5_000
    assert produced["rate"] > 0
    (one,) = nexo("queue", "peek", queue, "--limit", "1", "--json").json()
    assert len(one["text"]) == 15
    consumed = nexo("consume", queue, "--count", "3000", "--concurrency", "64", "--json").json()
    assert (consumed["acked"], consumed["nacked"]) == (3_000, 0)
    info = nexo("queue", "info", queue, "--json").json()
    assert (info["pushed"], info["acked"], info["depth"]) == (5_000, 3_000, 2_000)
    assert info["ready"] == 2_000, "what was prefetched went back"
    told = nexo("consume", queue, "--count", "2000")
    assert told.out.startswith("Acked 2,000 messages in")


def test_consume_creates_the_queue_and_waits(nexo, queue):
    process = nexo.start("consume", queue, "--count", "2", "--print")
    try:
        nexo("produce", queue, "--count", "2", "--size", "40")
        out, _ = process.communicate(timeout=20)
    finally:
        process.kill()
    assert process.returncode == 0
    assert [len(line) for line in out.splitlines()] == [40, 40]


def test_consume_that_fails_sometimes(nexo, queue):
    nexo("produce", queue, "--count", "200")
    arguments = ["--fail-rate", "0.3", "--idle", "3s", "--json"]
    done = nexo("consume", queue, *arguments).json()
    info = nexo("queue", "info", queue, "--json").json()
    assert info["depth"] == 0
    assert done["acked"] == info["acked"]
    assert done["nacked"] == info["nacked"] > 0
    assert info["acked"] + info["dead_lettered"] == 200


def test_produce_at_a_rate(nexo, queue):
    produced = nexo("produce", queue, "--count", "50", "--rate", "50", "--json").json()
    assert produced["pushed"] == 50
    assert 0.8 < produced["seconds"] < 10


def test_signals_end_produce_and_consume_in_order(nexo, queue):
    producer = nexo.start("produce", queue, "--count", "0", "--rate", "100", "--json")
    consumer = nexo.start("consume", queue, "--json")
    try:
        while not _acked(nexo, queue):
            time.sleep(0.1)
        producer.send_signal(signal.SIGTERM)
        pushed = json.loads(producer.communicate(timeout=20)[0])["pushed"]
        while nexo("queue", "info", queue, "--json").json()["depth"]:
            time.sleep(0.1)
        consumer.send_signal(signal.SIGINT)
        acked = json.loads(consumer.communicate(timeout=20)[0])["acked"]
    finally:
        producer.kill()
        consumer.kill()
    assert (producer.returncode, consumer.returncode) == (0, 0)
    assert pushed == acked > 0


def _acked(nexo, queue):
    return sum(i["acked"] for i in nexo("queue", "list", "--json").json() if i["name"] == queue)
