"""`nexo top`, `bench`, `doctor` and `version`."""

import json
import signal

from nexo import __version__
from tests.cli.commands import BrokerProcess, Nexo


def test_top_once(nexo, queue):
    nexo("produce", queue, "--count", "1234")
    shown = nexo("top", "--once").out
    assert "1,234" in shown
    assert "acks/s" in shown
    look = nexo("top", "--once", "--json", "--sort", "depth").json()
    (found,) = [each for each in look["queues"] if each["name"] == queue]
    assert found["depth"] == 1_234
    assert found["push_rate"] == 0


def test_top_streams_a_document_a_line(nexo, queue):
    nexo("push", queue, "a", "--create")
    process = nexo.start("top", "--json", "--interval", "100ms")
    try:
        documents = [json.loads(process.stdout.readline()) for _ in range(3)]
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=10)
    finally:
        process.kill()
    assert process.returncode == 0
    assert all(queue in [each["name"] for each in look["queues"]] for look in documents)


def test_bench_throughput(nexo):
    measured = nexo("bench", "throughput", "--count", "5000", "--batch", "50", "--json").json()
    for part in ("push", "pop + ack"):
        assert measured[part]["messages"] == 5_000
        assert measured[part]["rate"] > 0
        latency = measured[part]["latency_ms"]
        assert 0 < latency["p50"] <= latency["p99"] <= latency["max"]
    assert not [q for q in nexo("queue", "list", "--json").json() if q["name"][:6] == "bench-"]


def test_bench_latency(nexo):
    shown = nexo("bench", "latency", "--rate", "200", "--seconds", "500ms").out
    assert "push to consumer" in shown
    assert "p99" in shown


def test_doctor(nexo, alone):
    checked = nexo("doctor", "--json").json()
    found = {each["name"]: each for each in checked["checks"]}
    assert checked["sound"] is True
    assert {"python", "sqlite", "disk", "fsync", "clock", "port", "broker"} <= found.keys()
    assert {"java", "pyspark"} <= found.keys()
    assert found["broker"]["status"] == "ok"
    assert __version__ in found["broker"]["detail"]
    shown = alone("doctor").out
    assert "nexo serve" in shown
    assert "No problems, " in shown  # but there is a warning, that no broker answers


def test_doctor_looks_at_every_port(tmp_path):
    own = BrokerProcess(tmp_path).start()
    ports = {"http": own.http_port, "rpc": own.port, "udp": own.udp_port}
    wanted = {f"NEXO_{door.upper()}_PORT": str(port) for door, port in ports.items()}

    def told(**more: str) -> dict[str, tuple[str, str]]:
        found = Nexo(tmp_path)("doctor", "--json", environment=wanted | more).json()["checks"]
        ports = [each for each in found if each["name"] == "port"]
        return {each["detail"].split()[0]: (each["status"], each["detail"]) for each in ports}

    try:
        used = {door: f"{door} {port} is in use by process" for door, port in ports.items()}
        found = told()
        assert {door: status for door, (status, _) in found.items()} == dict.fromkeys(ports, "note")
        assert all(found[door][1].startswith(used[door]) for door in ports), found
        assert told(NEXO_UDP="off").keys() == {"http", "rpc"}
        own.stop()
        assert "ok" in {status for status, _ in told().values()}, "others may take one, not all"
    finally:
        own.kill()


def test_doctor_knows_a_host_that_is_none(alone):
    found = alone("doctor", "--json", environment={"NEXO_HOST": "192.0.2.1"}, status=1).json()
    port = next(each for each in found["checks"] if each["name"] == "port")
    assert port["status"] == "error"
    assert "--host" in port["hint"]


def test_doctor_audits_a_data_directory(tmp_path):
    own = BrokerProcess(tmp_path).start()
    nexo = Nexo(tmp_path, own.url)
    try:
        nexo("push", "orders", "--create", stdin="a\nb\nc\n")
        held = nexo("doctor", "--data", "data", "--json", status=1).json()
        (audit,) = [each for each in held["checks"] if each["name"] == "audit"]
        assert "in use" in audit["detail"]
        own.stop()
    finally:
        own.kill()
    sound = nexo("doctor", "--data", "data", "--json").json()
    (audit,) = [each for each in sound["checks"] if each["name"] == "audit"]
    assert audit["status"] == "ok"
    assert "4 messages" in audit["detail"], "three that were pushed, and the event that tells so"
    journal = tmp_path / "data" / "journal.db"
    content = bytearray(journal.read_bytes())
    where = content.find(b"abc")
    content[where] ^= 1
    journal.write_bytes(content)
    broken = nexo("doctor", "--data", "data", status=1)
    assert "✗" in broken.out
    assert "there is no broker data" in nexo("doctor", "--data", "elsewhere", status=1).out


def test_version(nexo, alone):
    told = nexo("version", "--json").json()
    assert (told["version"], told["broker"]) == (__version__, f"nexo {__version__}")
    assert "not reachable" in alone("version").out
