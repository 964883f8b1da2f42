"""Lists, pages and definitions of all nodes at any of them."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import signal
import socket
import time
import urllib.error
import urllib.parse
import urllib.request
from typing import TYPE_CHECKING, Any

import boto3
import pytest

import nexo
from tests.cli.commands import Nexo
from tests.cluster.nodes import SHARDS
from tests.cluster.test_one_address import apart, sqs
from tests.console.world import claim

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.cluster.nodes import Nodes


pytestmark = pytest.mark.timeout(180)  # the first one starts the nodes


def api(nodes: Nodes, node: str, method: str, path: str, body: Any = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    url = f"http://127.0.0.1:{nodes[node].http_port}/api/v1/{path}"
    request = urllib.request.Request(url, data, method=method)
    request.add_header("content-type", "application/json")
    with urllib.request.urlopen(request) as answer:
        return json.loads(answer.read() or b"null")


def page(nodes: Nodes, node: str, path: str) -> str:
    url = f"http://127.0.0.1:{nodes[node].http_port}/console{path}"
    with urllib.request.urlopen(url) as answer:
        return str(answer.read().decode())


def post(nodes: Nodes, node: str, path: str, **fields: str) -> str:
    """Send a form of the console as a browser does, and return the page that it leads to."""
    proof = re.search(r'name="csrf" value="([0-9a-f]+)"', page(nodes, node, "/queues"))
    assert proof is not None
    url = f"http://127.0.0.1:{nodes[node].http_port}/console{path}"
    body = urllib.parse.urlencode({"csrf": proof[1], **fields}).encode()
    request = urllib.request.Request(url, body)
    request.add_header("origin", f"http://127.0.0.1:{nodes[node].http_port}")
    with urllib.request.urlopen(request) as answer:
        return str(answer.read().decode())


@pytest.fixture(scope="module")
def names(nodes: Nodes) -> tuple[str, str]:
    """A queue of node a and one of node b, with what goes with them."""
    both = apart(nodes)
    with nexo.connect(nodes["a"].url) as client:
        for at, name in enumerate(both):
            queue = client.create_queue(f"{name}.w", max_attempts=1)
            queue.push_batch([b"one"] * (at + 3))
            topic = client.create_topic(f"{name}.t")
            topic.bind(queue=f"{name}.bound")
            topic.publish("news")
            message = queue.pop()
            assert message is not None
            message.nack(reason="broken")
    return both


def test_lists_of_the_api(nodes: Nodes, names: tuple[str, str]) -> None:
    wanted = sorted(f"{name}.{kind}" for name in names for kind in ("w", "w_dlq", "bound"))
    with nexo.connect(nodes["a"].url) as client:  # other tests may have had their turn with them
        held = {name: client.queue(name).info().depth for name in wanted}
    for entry in "ab":
        found = api(nodes, entry, "GET", "queues")
        assert [each["name"] for each in found["queues"]] == wanted
        assert found["next"] is None
        assert {each["name"]: each["depth"] for each in found["queues"]} == held
        paged: list[str] = []
        after = ""
        while True:
            some = api(nodes, entry, "GET", f"queues?limit=2&after={after}")
            paged += [each["name"] for each in some["queues"]]
            after = some["next"]
            if after is None:
                break
        assert paged == wanted
        topics = api(nodes, entry, "GET", "topics")["topics"]
        told = {each["name"]: each["bound_queues"] for each in topics}
        assert {f"{name}.t": [f"{name}.bound"] for name in names}.items() <= told.items()
        overview = api(nodes, entry, "GET", "overview")
        assert (overview["queues"], overview["depth"]) == (6, sum(held.values()))
        figures = api(nodes, entry, "GET", "cluster")
        assert [each["name"] for each in figures["nodes"]] == ["a", "b"]


def test_redrives_have_numbers_of_their_own(nodes: Nodes, names: tuple[str, str]) -> None:
    tasks = {}
    for name in names:
        begun = api(nodes, "a", "POST", f"queues/{name}.w_dlq/redrive", {})
        tasks[begun["task"]] = f"{name}.w_dlq"
    assert len(tasks) == 2
    for entry in "ab":
        for task, queue in tasks.items():
            assert api(nodes, entry, "GET", f"redrives/{task}")["queue"] == queue
    for task in tasks:
        api(nodes, "b", "DELETE", f"redrives/{task}")
        until = time.monotonic() + 10
        while not api(nodes, "a", "GET", f"redrives/{task}")["finished"]:
            assert time.monotonic() < until
            time.sleep(0.05)
    with pytest.raises(urllib.error.HTTPError) as refused:
        api(nodes, "a", "GET", "redrives/999999")
    assert refused.value.code == 404
    refused.value.close()


def test_definitions(nodes: Nodes, names: tuple[str, str], tmp_path: Path) -> None:
    def told(node: str) -> Any:
        return json.loads(Nexo(tmp_path, nodes[node].url)("export").out)

    found = told("a")
    assert found == told("b")
    assert {"topic": f"{names[1]}.t", "queue": f"{names[1]}.bound"}.items() <= {
        key: value for each in found["bindings"] for key, value in each.items()
    }.items() or len(found["bindings"]) == 2
    more = {
        "version": 1,
        "queues": [{"name": f"{name}.imported", "settings": {"delay": 5}} for name in names],
        "topics": [{"name": f"{name}.timported"} for name in names],
        "bindings": [{"topic": f"{name}.timported", "queue": f"{name}.imported"} for name in names],
    }
    file = tmp_path / "definitions.json"
    file.write_text(json.dumps(more))
    tried = api(nodes, "b", "PUT", "definitions?dry_run=true", more)
    assert {each["outcome"] for each in tried["definitions"]} == {"created"}
    Nexo(tmp_path, nodes["a"].url)("import", str(file))
    again = api(nodes, "b", "PUT", "definitions", more)
    assert {each["outcome"] for each in again["definitions"]} == {"unchanged"}
    wrong = {"version": 1, "queues": [{"name": f"{names[0]}.never"}, {"name": "no good"}]}
    with pytest.raises(urllib.error.HTTPError) as refused:
        api(nodes, "a", "PUT", "definitions", wrong)
    assert refused.value.code == 400
    refused.value.close()
    with nexo.connect(nodes["b"].url) as client:
        known = {each.name for each in client.queues()}
        assert f"{names[0]}.never" not in known
        for name in names:
            client.topic(f"{name}.timported").delete()
            client.queue(f"{name}.imported").delete()


def test_connections_of_all_nodes(nodes: Nodes, names: tuple[str, str], tmp_path: Path) -> None:
    with nexo.connect(nodes["a"].url, name="busy") as client:
        subscriptions = [client.queue(f"{name}.bound").subscribe(prefetch=5) for name in names]
        for subscription in subscriptions:
            with next(iter(subscription)):
                pass
        busy: dict[str, Any] = {}
        for entry in "ab":
            found = api(nodes, entry, "GET", "connections")["connections"]
            (busy,) = [each for each in found if each["name"] == "busy"]
            queues = [each["queue"] for each in busy["consumers"]]
            assert sorted(queues) == sorted(f"{name}.bound" for name in names)
            assert busy["address"] == "127.0.0.1"
        told = Nexo(tmp_path, nodes["b"].url)("consumers", "--json").json()
        assert busy["number"] in [each["number"] for each in told]
        api(nodes, "b", "DELETE", f"connections/{busy['number']}")
        with pytest.raises(urllib.error.HTTPError) as refused:
            api(nodes, "b", "DELETE", f"connections/{busy['number']}")
        assert refused.value.code == 404
        refused.value.close()
        assert client.queue(f"{names[0]}.w").info().depth >= 1  # it comes back by itself


def test_sns_and_move_tasks(nodes: Nodes, names: tuple[str, str]) -> None:
    for entry in "ab":
        sns = boto3.client(
            "sns",
            endpoint_url=f"http://127.0.0.1:{nodes[entry].http_port}",
            region_name="us-east-1",
            aws_access_key_id="nexo",
            aws_secret_access_key="nexo",
        )
        topics = [each["TopicArn"].rpartition(":")[2] for each in sns.list_topics()["Topics"]]
        assert topics == sorted(f"{name}.t" for name in names)
        found = sns.list_subscriptions()["Subscriptions"]
        ends = [each["Endpoint"].rpartition(":")[2] for each in found]
        assert ends == sorted(f"{name}.bound" for name in names)
    for entry, name in zip("ba", names, strict=True):
        client = sqs(nodes, entry)
        url = client.get_queue_url(QueueName=f"{name}.w_dlq")["QueueUrl"]
        sources = client.list_dead_letter_source_queues(QueueUrl=url)["queueUrls"]
        assert [each.rpartition("/")[2] for each in sources] == [f"{name}.w"]
        arn = f"arn:aws:sqs:us-east-1:000000000000:{name}.w_dlq"
        begun = client.start_message_move_task(SourceArn=arn, MaxNumberOfMessagesPerSecond=1)
        listed = client.list_message_move_tasks(SourceArn=arn)["Results"]
        assert listed[0]["SourceArn"] == arn
        with contextlib.suppress(client.exceptions.ResourceNotFoundException):  # it was quicker
            client.cancel_message_move_task(TaskHandle=begun["TaskHandle"])


def test_pages_at_either_node(nodes: Nodes, names: tuple[str, str]) -> None:
    for entry in "ab":
        assert "Dead letters" in page(nodes, entry, "")
        listed = page(nodes, entry, "/queues")
        topics = page(nodes, entry, "/topics")
        for name in names:
            assert f"{name}.w</a>" in listed
            assert f"{name}.t</a>" in topics
            assert f"<h1>{name}.w" in re.sub(r"\s+", " ", page(nodes, entry, f"/queues/{name}.w"))
            assert "news" in page(nodes, entry, f"/topics/{name}.t")
            assert f"{name}.w_dlq" in page(nodes, entry, f"/dead-letters/{name}.w_dlq")
            assert f"/queues/{name}.w" in page(nodes, entry, f"/search?q={name}")
        for path in ("/consumers", "/access", "/spark", "/api", "/cluster", "/dead-letters"):
            assert "</html>" in page(nodes, entry, path)
        assert f"node <strong>{entry}</strong>" in page(nodes, entry, "/cluster")
    told = page(nodes, "a", "/cluster")
    assert re.findall(r'<th scope="row">([ab])</th>', told) == ["a", "b"]


def test_what_is_done_on_pages_is_done_at_the_owner(nodes: Nodes, names: tuple[str, str]) -> None:
    for entry in "ab":
        for name in names:
            queue = f"{name}.made-{entry}"
            assert f"Created queue {queue}." in post(nodes, entry, "/queues", name=queue)
            assert "Sent message" in post(nodes, entry, f"/queues/{queue}/send", body="hi")
            assert "Purged 1 message" in post(nodes, entry, f"/queues/{queue}/act/purge")
            told = post(nodes, entry, f"/queues/{queue}/act/delete")
            assert f"Deleted queue {queue}." in told  # though another node may show the list
    forged = page(nodes, "a", "/queues?notice=bm90aGluZw")
    assert "notice" not in re.findall(r'<p class="(\w+)"', forged)


def test_live_pages(nodes: Nodes, names: tuple[str, str]) -> None:
    """The figures of a queue of the other node come as they change."""
    for entry, name in zip("ba", names, strict=True):
        for path in (f"/console/live/queues/{name}.w", "/console/live/queues"):
            connection = http.client.HTTPConnection("127.0.0.1", nodes[entry].http_port, timeout=10)
            connection.request("GET", path)
            stream = connection.getresponse()
            assert stream.status == 200
            with nexo.connect(nodes[entry].url) as client:
                depth = client.queue(f"{name}.w").info().depth
                _until(stream, f'"q.{name}.w.depth":"{depth}"')
                client.queue(f"{name}.w").push(b"more")
                _until(stream, f'"q.{name}.w.depth":"{depth + 1}"')
            connection.close()


def _until(stream: http.client.HTTPResponse, wanted: str) -> None:
    until = time.monotonic() + 10
    while True:
        line = stream.readline().decode()
        if wanted in line:
            return
        assert time.monotonic() < until, wanted


def test_metrics_and_health_of_a_node(nodes: Nodes) -> None:
    for entry in "ab":
        base = f"http://127.0.0.1:{nodes[entry].http_port}"
        with urllib.request.urlopen(f"{base}/metrics") as answer:
            told = answer.read().decode()
        assert "\nnexo_node_up 1\n" in told
        assert "\nnexo_cluster_nodes 2\n" in told
        assert "\nnexo_cluster_shards_unowned 0\n" in told
        assert re.search(r"\nnexo_node_lease_seconds [1-4]", told)
        with urllib.request.urlopen(f"{base}/health") as answer:
            health = json.loads(answer.read())
        shards = sum(each.node == entry for each in nodes.status().shards)
        assert (health["status"], health["node"], health["shards"]) == ("ok", entry, shards)
        assert f"\nnexo_node_shards {shards}\n" in told


def test_a_stranger_cannot_say_that_a_node_passed_it_on(
    nodes: Nodes, names: tuple[str, str]
) -> None:
    """Else a request could be kept from its owner, or come with another's address."""
    for name in names:
        for entry in "ab":
            url = f"http://127.0.0.1:{nodes[entry].http_port}/api/v1/queues/{name}.w"
            request = urllib.request.Request(url)
            request.add_header("x-nexo-passed", "1")
            request.add_header("x-nexo-peer", "10.1.2.3")
            with urllib.request.urlopen(request) as answer:
                assert json.loads(answer.read())["name"] == f"{name}.w"


def test_datagrams_at_either_node(nodes: Nodes) -> None:
    for entry in "ab":
        for name in apart(nodes):
            topic = f"{name}.udp-{entry}"
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
                client.settimeout(10)
                client.connect(("127.0.0.1", nodes[entry].udp_port))

                def ask(client: socket.socket = client, topic: str = topic, **more: Any) -> Any:
                    client.send(json.dumps({"topic": topic, **more}).encode())
                    return json.loads(client.recv(65536))

                assert ask(action="get")["messages"] == []
                assert ask(action="subscribe") == {
                    "status": "success",
                    "action": "subscribe",
                    "topic": topic,
                }
                for number in range(3):
                    told = ask(action="publish", payload={"n": number}, ref=number)
                    assert (told["status"], told["ref"]) == ("success", number)
                found = ask(action="get")["messages"]
                assert [each["payload"] for each in found] == [{"n": n} for n in range(3)]
                assert ask(action="subscribe", group="g")["status"] == "success"
                taken = ask(action="get", group="g")["messages"]
                assert [each["payload"] for each in taken] == [{"n": n} for n in range(3)]
                acked = ask(action="ack", group="g", ids=[each["id"] for each in taken])
                assert acked["status"] == "success"
                assert ask(action="get", group="g")["messages"] == []
                assert ask(action="dance")["error"] == "Azione non supportata: dance"
            with nexo.connect(nodes[entry].url) as other:
                assert [event.json() for event in other.topic(topic).read()] == [
                    {"n": n} for n in range(3)
                ]
                other.topic(topic).delete()
                other.queue(f"{topic}.g").delete()


def test_doctor_and_backup(nodes: Nodes, tmp_path: Path) -> None:
    run = Nexo(tmp_path, nodes["b"].url)
    told = run("doctor", "--json", environment={"NEXO_JOURNAL": nodes.journal}).json()
    found = {each["name"]: each for each in told["checks"]}
    assert found["journal"]["status"] == "ok"
    assert "format version 1" in found["journal"]["detail"]
    assert (found["cluster"]["status"], found["cluster"]["detail"]) == (
        "ok",
        f"2 of 2 nodes up, {SHARDS} shards",
    )
    away = run(
        "doctor", "--json", environment={"NEXO_JOURNAL": "postgresql://127.0.0.1:1/x"}, status=1
    ).json()
    (journal,) = [each for each in away["checks"] if each["name"] == "journal"]
    assert journal["status"] == "error"
    refused = run("backup", str(tmp_path / "copy"), status=2)
    assert "pg_dump" in refused.err


def test_topics_of_a_queue_in_other_shards(nodes: Nodes) -> None:
    """The page of a queue names them, wherever they are."""
    names = apart(nodes)
    with nexo.connect(nodes["a"].url) as client:
        queue = f"{names[0]}.fed"
        client.create_queue(queue)
        # Of its own shard, of another one of the same node, of the other node.
        others = [f"far{number}" for number in range(30)]
        same = next(each for each in others if nodes.owner_of(each) == nodes.owner_of(names[0]))
        topics = [f"{names[0]}.feed", f"{same}.feed", f"{names[1]}.feed"]
        for topic in topics:
            client.create_topic(topic).bind(queue=queue)
        client.create_topic(f"{names[1]}.unbound")
        links = [f"/console/topics/{topic}" for topic in topics]
        for entry in "ab":  # a moment later, if a page was looked at just now
            _until_page(
                nodes, f"/queues/{queue}", lambda told: all(each in told for each in links), entry
            )
            assert f"{names[1]}.unbound" not in page(nodes, entry, f"/queues/{queue}")
        client.topic(topics[1]).unbind(queue=queue)
        _until_page(nodes, f"/queues/{queue}", lambda told: f"topics/{topics[1]}" not in told)
        for topic in (*topics, f"{names[1]}.unbound"):
            client.topic(topic).delete()
        _until_page(nodes, f"/queues/{queue}", lambda told: "/console/topics/" not in told)
        client.queue(queue).delete()


def test_finished_batches_of_spark(nodes: Nodes) -> None:
    """The page shows those of all queries, and how fast each is, at any node."""
    names = [f"{name}.claimed" for name in apart(nodes)]
    with nexo.connect(nodes["a"].url) as client:
        for at, name in enumerate(names):
            client.create_queue(name).push_batch([b"x"] * 100)
            claim(nodes[nodes.owner_of(name)].url, name, f"query{at}", 40)
        for entry in "ab":
            _until_page(nodes, "/spark", lambda told: _batches(told) == _wanted(names), entry)
            _until_page(nodes, "/spark", lambda told: _rates(told, names), entry)
            # Once each, also when it is looked at again.
            assert _batches(page(nodes, entry, "/spark")) == _wanted(names)
        for name in names:
            client.queue(name).delete()


def _wanted(names: list[str]) -> list[tuple[str, str, str]]:
    return sorted((name, f"query{at}", "40") for at, name in enumerate(names))


def _batches(told: str) -> list[tuple[str, str, str]]:
    """The queue, the query and the rows of each batch on the page."""
    if "No batch finished" in told or '<h2 id="batches-title"' not in told:
        return []
    table = told[told.index('<div id="batches"') : told.index('id="jobs-title"')]
    row = r'scope="row"><a [^>]*>([^<]*)</a>.*?"Query"><bdi>([^<]*)<.*?"Rows" class="n">([^<]*)<'
    return sorted(re.findall(row, table, re.DOTALL))


def _rates(told: str, names: list[str]) -> bool:
    """Whether each query has a rate."""
    found = [
        re.search(rf'data-k="spark\.{re.escape(name)}\.query{at}\.rate"[^>]*>([^<]*)<', told)
        for at, name in enumerate(names)
    ]
    return all(each is not None and each[1][:1].isdigit() for each in found)


def _until_page(nodes: Nodes, path: str, is_so: Callable[[str], bool], entry: str = "b") -> None:
    """Others are asked anew about once a second."""
    until = time.monotonic() + 15
    while not is_so(told := page(nodes, entry, path)):
        assert time.monotonic() < until, told
        time.sleep(0.2)


def test_pages_while_a_node_is_silent(moving: Nodes) -> None:
    """They show what it told before."""
    names = apart(moving)
    with nexo.connect(moving["a"].url) as client:
        queue = f"{names[0]}.fed"
        client.create_queue(queue)
        client.create_topic(f"{names[1]}.feed").bind(queue=queue)
        claimed = [f"{name}.claimed" for name in names]
        for at, name in enumerate(claimed):
            client.create_queue(name).push_batch([b"x"] * 100)
            claim(moving[moving.owner_of(name)].url, name, f"query{at}", 40)
    entry, other = moving.owner_of(names[0]), moving.owner_of(names[1])
    _until_page(moving, "/spark", lambda told: _batches(told) == _wanted(claimed), entry)
    _until_page(moving, f"/queues/{queue}", lambda told: f"{names[1]}.feed" in told, entry)
    moving.send(other, signal.SIGSTOP)
    assert f"topics/{names[1]}.feed" in page(moving, entry, f"/queues/{queue}")
    assert _batches(page(moving, entry, "/spark")) == _wanted(claimed)
    # Its shards come here when its lease has ended, and so does what they know.
    moving.wait_until(lambda found: all(each.node == entry for each in found.shards), entry)
    _until_page(moving, "/spark", lambda told: _batches(told) == _wanted(claimed), entry)
    assert f"topics/{names[1]}.feed" in page(moving, entry, f"/queues/{queue}")
