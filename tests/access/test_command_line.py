"""`nexo token`, `nexo audit` and `nexo serve --access required`, as a person uses them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import trustme

from tests.cli.commands import BrokerProcess, Nexo

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


@pytest.fixture
def required(folder: Path) -> Iterator[BrokerProcess]:
    broker = BrokerProcess(folder, "--access", "required", "--http-port", "0")
    yield broker
    broker.kill()


def create(nexo: Nexo, *arguments: str | Path) -> str:
    made = nexo("token", "create", *arguments, "--json").json()
    assert set(made) == {"name", "token", "allow", "expires_at"}
    return str(made["token"])


def test_tokens_from_before_the_first_start_to_their_end(
    folder: Path, required: BrokerProcess
) -> None:
    """The whole way of an operator."""
    data = folder / "data"
    admin = create(Nexo(folder), "admin", "--allow", "*:*", "--data", data)
    required.start()
    nexo = Nexo(folder, required.url)

    def as_(token: str) -> dict[str, str]:
        return {"NEXO_TOKEN": token}

    assert "no token was given" in nexo("queue", "list", status=1).err
    nexo("queue", "create", "orders.eu", environment=as_(admin))
    made = nexo(
        *("token", "create", "shop", "--allow", "orders.*:push,pop", "--expires", "30d", "--json"),
        environment=as_(admin),
    ).json()
    shop = made["token"]
    assert (made["name"], made["allow"]) == ("shop", ["orders.*:push,pop"])
    assert made["expires_at"] is not None
    nexo("push", "orders.eu", "hello", environment=as_(shop))
    assert nexo("pop", "orders.eu", environment=as_(shop)).out == "hello\n"
    assert (
        "lacks the permission"
        in nexo("queue", "purge", "orders.eu", "--yes", status=1, environment=as_(shop)).err
    )
    assert "lacks the permission" in nexo("token", "list", status=1, environment=as_(shop)).err
    names = [
        each["name"] for each in nexo("token", "list", "--json", environment=as_(admin)).json()
    ]
    assert names == ["admin", "shop"]
    nexo("token", "revoke", "shop", environment=as_(admin))
    refused = nexo("push", "orders.eu", "late", "--json", status=1, environment=as_(shop))
    assert json.loads(refused.err)["error"]["code"] == "unauthorized"
    told = [json.loads(line) for line in nexo("audit", "--data", data, "--json").lines[:3]]
    assert [(each["who"], each["action"], each["outcome"]) for each in told] == [
        ("admin", "revoke_token", "done"),
        ("shop", "purge", "forbidden"),
        ("admin", "create_token", "done"),
    ]
    assert "forbidden" in nexo("audit", "--data", data).out
    _, out, err = required.stop()
    for secret in (admin, shop):
        assert secret.rpartition("_")[2] not in out + err + (data / "audit.jsonl").read_text()


def test_tokens_survive_a_crash_and_so_does_their_end(
    folder: Path, required: BrokerProcess
) -> None:
    admin = create(Nexo(folder), "admin", "--allow", "*:*", "--data", folder / "data")
    required.start()
    nexo, as_admin = Nexo(folder, required.url), {"NEXO_TOKEN": admin}
    made = [
        nexo(*("token", "create", name, "--allow", "orders:*", "--json"), environment=as_admin)
        for name in ("kept", "revoked")
    ]
    kept, revoked = (each.json()["token"] for each in made)
    nexo("token", "revoke", "revoked", environment=as_admin)
    required.kill()
    required.start()
    nexo = Nexo(folder, required.url)
    nexo("queue", "create", "orders", environment={"NEXO_TOKEN": kept})
    nexo("queue", "list", status=1, environment={"NEXO_TOKEN": revoked})


def test_the_data_of_a_running_broker_is_not_touched(folder: Path, required: BrokerProcess) -> None:
    create(Nexo(folder), "admin", "--allow", "*:*", "--data", folder / "data")
    required.start()
    refused = Nexo(folder)(
        *("token", "create", "more", "--allow", "*:*", "--data", folder / "data"), status=1
    )
    assert "process" in refused.err


def test_a_token_in_a_file_is_in_no_list_of_processes(
    folder: Path, required: BrokerProcess
) -> None:
    token = create(Nexo(folder), "admin", "--allow", "*:*", "--data", folder / "data")
    (folder / "secret").write_text(token + "\n")
    required.start()
    nexo = Nexo(folder, required.url)
    nexo("queue", "create", "orders", "--token", "@secret")
    consuming = nexo.start("consume", "orders", "--token", f"@{folder / 'secret'}")
    try:
        line = Path(f"/proc/{consuming.pid}/cmdline")
        if line.exists():
            assert token.encode() not in line.read_bytes()
    finally:
        consuming.kill()
        consuming.communicate()


def test_offline_tokens_are_listed_and_revoked(folder: Path) -> None:
    nexo, data = Nexo(folder), folder / "data"
    create(nexo, "one", "--allow", "a:push", "--allow", "b:pop", "--data", data)
    pair = nexo("token", "create", "two", "--allow", "a:push", "--aws", "--data", data, "--json")
    assert set(pair.json()) == {
        *("name", "allow", "expires_at", "access_key_id", "secret_access_key"),
    }
    listed = nexo("token", "list", "--data", data, "--json").json()
    assert [each["name"] for each in listed] == ["one", "two"]
    assert listed[0]["allow"] == ["a:push", "b:pop"]
    assert listed[1]["access_key_id"] == pair.json()["access_key_id"]
    assert "one" in nexo("token", "list", "--data", data).out
    nexo("token", "revoke", "one", "--data", data)
    nexo("token", "revoke", "one", "--data", data, status=1)
    nexo("token", "create", "two", "--allow", "a:push", "--data", data, status=1)
    nexo("token", "list", "--data", folder / "elsewhere", status=2)


@pytest.mark.parametrize("allow", ["", "orders", "orders:fly", "orders:admin", "a b:push", ":push"])
def test_a_wrong_permission_is_wrong_usage(folder: Path, allow: str) -> None:
    refused = Nexo(folder)(
        *("token", "create", "x", "--allow", allow, "--data", folder / "data"), status=2
    )
    assert len(refused.err.splitlines()) == 1


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_anyone_from_anywhere_has_to_be_meant(folder: Path, host: str) -> None:
    nexo = Nexo(folder)
    refused = nexo("serve", "--host", host, "--data", folder / "data", status=1)
    assert len(refused.err.splitlines()) == 1
    assert "--access required" in refused.err
    assert "--insecure" in refused.err
    assert not (folder / "data").exists()


@pytest.mark.parametrize("how", ["required", "insecure"])
def test_said_so_it_listens_everywhere(folder: Path, how: str) -> None:
    chosen = ["--access", "required"] if how == "required" else ["--insecure"]
    broker = BrokerProcess(folder, "--host", "0.0.0.0", "--http-port", "0", *chosen)
    try:
        broker.start()
        status = 1 if how == "required" else 0
        Nexo(folder, broker.url)("queue", "list", status=status)
    finally:
        broker.kill()


def test_commands_speak_tls(folder: Path) -> None:
    ca = trustme.CA()
    issued = ca.issue_cert("127.0.0.1")
    ca.cert_pem.write_to_path(folder / "ca.pem")
    issued.private_key_pem.write_to_path(folder / "key.pem")
    issued.cert_chain_pems[0].write_to_path(folder / "cert.pem")
    broker = BrokerProcess(
        folder, "--http-port", "0", "--tls-cert", "cert.pem", "--tls-key", "key.pem"
    )
    try:
        broker.start()
        url = broker.url.replace("nexo://", "nexos://")
        nexo = Nexo(folder, url)
        nexo("push", "orders", "hello", "--create", "--tls-ca", "ca.pem")
        assert nexo("pop", "orders", environment={"NEXO_TLS_CA": "ca.pem"}).out == "hello\n"
        assert "not trusted" in nexo("pop", "orders", status=3).err
        assert "nexos://" in nexo("pop", "orders", "--url", broker.url, status=3).err
        _, out, _ = broker.stop()
        assert "ready   nexos://" in out
        assert "https://" in out
    finally:
        broker.kill()
    refused = Nexo(folder)("serve", "--tls-cert", "cert.pem", "--data", "d2", status=2)
    assert "--tls-key" in refused.err
