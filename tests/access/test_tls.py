"""TLS with real certificates: both clients, large batches, certificates that change, and those that
should not be trusted."""

from __future__ import annotations

import asyncio
import gc
import http.client
import logging
import socket
import ssl
import struct
import threading
import time
import weakref
from typing import TYPE_CHECKING, Any

import pytest
import trustme

import nexo
from nexo.access.tls import ServerTls
from nexo.client.address import Untrusted
from nexo.doors.rpc_tcp import door as doors
from nexo.doors.rpc_tcp.connection import Connection
from nexo.wire import commands
from nexo.wire.frame import Kind, frame
from tests.access.guarded import GuardedBroker
from tests.client.eventually import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MEGABYTE = 1024 * 1024


class Certified:
    """A CA, a broker with a certificate of it, and the files."""

    def __init__(self, folder: Path) -> None:
        self.ca = trustme.CA()
        self.ca_file = folder / "ca.pem"
        self.ca.cert_pem.write_to_path(self.ca_file)
        self.certificate, self.key = folder / "broker.pem", folder / "broker.key"
        self.issue()
        self.broker = GuardedBroker(tls_cert=str(self.certificate), tls_key=str(self.key))
        self.token = self.broker.token("*:*")

    def issue(self, ca: trustme.CA | None = None, *names: str) -> None:
        issued = (ca or self.ca).issue_cert(*(names or ("localhost", "127.0.0.1")))
        self.key.write_bytes(issued.private_key_pem.bytes())
        self.certificate.write_bytes(b"".join(pem.bytes() for pem in issued.cert_chain_pems))

    @property
    def url(self) -> str:
        return f"nexos://127.0.0.1:{self.broker.ports.rpc}"

    def serial(self, port: int | None = None) -> int:
        """Of the certificate that a new connection is shown."""
        context = ssl.create_default_context(cafile=str(self.ca_file))
        place = ("127.0.0.1", port or self.broker.ports.rpc)
        with (
            socket.create_connection(place, 10) as plain,
            context.wrap_socket(plain, server_hostname="localhost") as secure,
        ):
            shown: dict[str, Any] = secure.getpeercert() or {}
            return int(shown["serialNumber"], 16)


@pytest.fixture(scope="module")
def certified(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Certified]:
    made = Certified(tmp_path_factory.mktemp("tls"))
    yield made
    made.broker.stop()


def test_the_blocking_client(certified: Certified) -> None:
    with nexo.connect(certified.url, certified.token, tls_ca=str(certified.ca_file)) as client:
        queue = client.create_queue("blocking", max_message_bytes=4 * MEGABYTE)
        bodies = [bytes([n]) * MEGABYTE for n in range(20)]
        queue.push_batch(bodies)
        popped: list[bytes] = []
        while len(popped) < len(bodies):
            for message in queue.pop_batch(10, wait=5):
                popped.append(message.body)
                message.ack()
        assert popped == bodies
        assert queue.pop(wait=0.2) is None


def test_the_asyncio_client(certified: Certified) -> None:
    async def scenario() -> list[bytes]:
        async with nexo.connect_async(
            certified.url, certified.token, tls_ca=str(certified.ca_file)
        ) as client:
            queue = await client.create_queue("async", max_message_bytes=4 * MEGABYTE)
            await queue.push_batch([b"a" * MEGABYTE, b"b"])
            return [message.body for message in await queue.pop_batch(10, wait=5)]

    assert asyncio.run(scenario()) == [b"a" * MEGABYTE, b"b"]


def test_nothing_is_left_of_a_client_that_leaves(
    certified: Certified, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the help of the garbage collector, whether it has greeted or not."""
    made: list[weakref.ref[Any]] = []

    def make(*arguments: Any) -> Connection:
        connection = Connection(*arguments)
        made.append(weakref.ref(connection))
        return connection

    monkeypatch.setattr(doors, "Connection", make)
    context = ssl.create_default_context(cafile=str(certified.ca_file))
    hello = commands.Hello(commands.MAGIC, (1, 1), "x", certified.token)
    greeting = frame(Kind.HELLO, 1, commands.pack(hello))
    half = struct.pack("<III", MEGABYTE, 10 << 8 | Kind.PUSH, 1) + bytes(100_000)
    gc.collect()
    gc.disable()
    try:
        for sent in (b"", half, greeting, greeting + half):
            with (
                socket.create_connection(("127.0.0.1", certified.broker.ports.rpc), 10) as plain,
                context.wrap_socket(plain, server_hostname="localhost") as secure,
            ):
                secure.sendall(sent)
                time.sleep(0.1)
        eventually(lambda: len(made) == 4 and not any(each() for each in made))
    finally:
        gc.enable()


def test_threads_share_a_secure_connection(certified: Certified) -> None:
    """One reads while others write: TLS must not mind."""
    count, threads = 200, 6
    with nexo.connect(certified.url, certified.token, tls_ca=str(certified.ca_file)) as client:
        queue = client.create_queue("threads")
        failed: list[BaseException] = []

        def work(number: int) -> None:
            try:
                for each in range(count):
                    queue.push(f"{number} {each}" + "x" * (each * 50))
            except BaseException as error:
                failed.append(error)
                raise

        workers = [threading.Thread(target=work, args=(n,)) for n in range(threads)]
        for worker in workers:
            worker.start()
        seen = 0
        for message in queue.subscribe(prefetch=50):
            with message:
                seen += 1
            if seen == count * threads:
                break
        for worker in workers:
            worker.join()
        assert not failed
        assert queue.info().acked == count * threads


@pytest.mark.parametrize("twin", ["blocking", "asyncio"])
def test_a_lost_connection_is_made_anew(certified: Certified, twin: str) -> None:
    def cut() -> None:
        door: Any = certified.broker.broker._rpc

        def abort() -> None:
            for connection in list(door.connections):
                connection._transport.abort()

        certified.broker.run(abort)

    options: dict[str, Any] = {"tls_ca": str(certified.ca_file)}
    if twin == "blocking":
        with nexo.connect(certified.url, certified.token, **options) as client:
            queue = client.create_queue("lost")
            for number in range(3):
                queue.push(str(number))
                cut()
            assert queue.info().depth == 3
        return

    async def scenario() -> int:
        async with nexo.connect_async(certified.url, certified.token, **options) as client:
            queue = await client.create_queue("lost-async")
            for number in range(3):
                await queue.push(str(number))
                await asyncio.to_thread(cut)
            return (await queue.info()).depth

    assert asyncio.run(scenario()) == 3


def test_http_speaks_tls(certified: Certified) -> None:
    context = ssl.create_default_context(cafile=str(certified.ca_file))
    port = certified.broker.ports.http
    connection = http.client.HTTPSConnection("localhost", port, context=context, timeout=10)
    connection.request("GET", "/health")
    answer = connection.getresponse()
    assert (answer.status, answer.read()) == (200, b'{"status":"ok"}')
    connection.request("GET", "/metrics")
    refused = connection.getresponse()
    assert refused.status == 401
    connection.close()


@pytest.mark.parametrize("twin", ["blocking", "asyncio"])
@pytest.mark.parametrize(
    ("scheme", "options", "told"),
    [
        ("nexos", {}, "is not trusted"),
        ("nexo", {}, "closed the connection during the handshake"),
    ],
)
def test_who_is_not_trusted_is_told_nothing(
    certified: Certified, twin: str, scheme: str, options: dict[str, Any], told: str
) -> None:
    url = f"{scheme}://127.0.0.1:{certified.broker.ports.rpc}"
    with pytest.raises(nexo.Unreachable, match=told) as caught:
        _connect(twin, url, certified.token, timeout=4, **options)
    hint = caught.value.hint
    assert "tls_ca" in hint or ("nexos://" in hint and "no healthy node" in hint)


@pytest.mark.parametrize("twin", ["blocking", "asyncio"])
def test_a_certificate_of_another_name_is_not_trusted(tmp_path: Path, twin: str) -> None:
    made = Certified(tmp_path)
    try:
        made.issue(None, "elsewhere.example")
        made.broker.run(made.broker.broker._security._tls.refresh)  # type: ignore[union-attr]
        with pytest.raises(Untrusted, match="not trusted"):
            _connect(twin, made.url, made.token, timeout=5, tls_ca=str(made.ca_file))
        _connect(twin, made.url, made.token, timeout=5, tls_verify=False)
    finally:
        made.broker.stop()


@pytest.mark.parametrize("twin", ["blocking", "asyncio"])
def test_tls_to_a_plain_port_says_so(twin: str) -> None:
    plain = GuardedBroker()
    try:
        url = f"nexos://127.0.0.1:{plain.ports.rpc}"
        with pytest.raises(Untrusted, match="does not use TLS"):
            _connect(twin, url, None, timeout=5)
    finally:
        plain.stop()


def test_a_new_certificate_is_taken_up_without_a_restart(certified: Certified) -> None:
    with nexo.connect(certified.url, certified.token, tls_ca=str(certified.ca_file)) as client:
        before = certified.serial()
        certified.issue()
        security: Any = certified.broker.broker._security
        certified.broker.run(security._tls.refresh)  # unless the broker has just done so itself
        assert certified.serial() != before
        assert certified.serial(certified.broker.ports.http) == certified.serial()
        client.create_queue("still-connected")


def test_a_bad_certificate_is_refused_and_the_old_one_stays(
    certified: Certified, caplog: pytest.LogCaptureFixture
) -> None:
    before = certified.serial()
    security: Any = certified.broker.broker._security
    good = certified.key.read_bytes()
    certified.key.write_bytes(good[: len(good) // 2])  # half written
    with caplog.at_level(logging.ERROR):
        assert not certified.broker.run(security._tls.refresh)
        assert not certified.broker.run(security._tls.refresh)
    refused = [each for each in caplog.records if "cannot load" in each.getMessage()]
    assert len(refused) == 1, "said once, not each round"
    assert certified.serial() == before
    certified.key.unlink()
    assert not certified.broker.run(security._tls.refresh)
    assert certified.serial() == before
    certified.key.write_bytes(good)
    certified.broker.run(security._tls.refresh)
    assert certified.serial() == before


def test_the_files_are_looked_at_by_themselves(certified: Certified) -> None:
    before = certified.serial()
    certified.issue()
    eventually(lambda: certified.serial() != before)


@pytest.mark.parametrize("files", ["swapped", "mismatched", "missing", "locked"])
def test_a_broker_does_not_start_with_files_that_are_no_pair(tmp_path: Path, files: str) -> None:
    ca = trustme.CA()
    one, two = ca.issue_cert("localhost"), ca.issue_cert("localhost")
    certificate, key = tmp_path / "c.pem", tmp_path / "k.pem"
    certificate.write_bytes(one.cert_chain_pems[0].bytes())
    key.write_bytes(one.private_key_pem.bytes())
    if files == "swapped":
        certificate, key = key, certificate
    elif files == "mismatched":
        key.write_bytes(two.private_key_pem.bytes())
    elif files == "missing":
        key.unlink()
    else:
        key.write_bytes(_with_password(one.private_key_pem.bytes()))
    with pytest.raises(nexo.InvalidArgument):
        ServerTls(certificate, key)


def test_old_tls_is_refused(certified: Certified) -> None:
    context = ssl.create_default_context(cafile=str(certified.ca_file))
    assert certified.broker.broker._security is not None
    served = certified.broker.broker._security.tls
    assert served is not None
    assert served.minimum_version == ssl.TLSVersion.TLSv1_2
    assert context.minimum_version >= ssl.TLSVersion.TLSv1_2


def _with_password(pem: bytes) -> bytes:
    from cryptography.hazmat.primitives import serialization

    key = serialization.load_pem_private_key(pem, None)
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"password"),
    )


def _connect(twin: str, url: str, token: str | None, **options: Any) -> None:
    if twin == "blocking":
        nexo.connect(url, token, **options).close()
        return

    async def connect() -> None:
        async with nexo.connect_async(url, token, **options):
            pass

    asyncio.run(connect())
