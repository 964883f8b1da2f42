"""Tokens are definitions: they survive, are revoked for good, and their secrets are nowhere."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

import pytest

import nexo
from nexo.access.audit import AUDIT_FILE
from nexo.machine.catalog import (
    Catalog,
    decode_catalog_image,
    encoded_in_steps,
    fold_catalog,
)
from tests.access.guarded import GuardedBroker

if TYPE_CHECKING:
    from pathlib import Path


def test_tokens_survive_a_restart_and_revocations_too(tmp_path: Path) -> None:
    first = GuardedBroker(data=str(tmp_path / "data"))
    try:
        kept, gone = first.mint("orders:push"), first.mint("orders:push")
        first.revoke(gone)
    finally:
        first.stop()
    second = GuardedBroker(data=str(tmp_path / "data"))
    try:
        with (
            nexo.connect(second.url, token=kept.token) as client,
            pytest.raises(nexo.QueueNotFound),
        ):
            client.queue("orders").push("x")
        with pytest.raises(nexo.Unauthorized):
            nexo.connect(second.url, token=gone.token)
    finally:
        second.stop()


def test_tokens_survive_snapshots_of_the_catalog(tmp_path: Path) -> None:
    broker = GuardedBroker(data=str(tmp_path / "data"))
    try:
        broker.mint("orders:push", aws=True)
        catalog = broker.engine._catalog.catalog
        image = decode_catalog_image(b"".join(encoded_in_steps(catalog.image(), 1)))
        assert Catalog(image).tokens == catalog.tokens
        assert fold_catalog(image, []).tokens == catalog.tokens
    finally:
        broker.stop()


def test_the_secret_of_a_token_is_not_kept(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broker = GuardedBroker(data=str(tmp_path / "data"))
    try:
        with nexo.connect(broker.url, token=broker.token("*:*")) as admin:
            made = admin.create_token("shop", ["orders.*:push,pop"], expires=3600)
            listed = admin.tokens()
        assert made.token is not None
        secret = made.token.rpartition("_")[2]
        with pytest.raises(nexo.Unauthorized):
            nexo.connect(broker.url, token=made.token[:-4] + "aaaa")
    finally:
        broker.stop()
    for file in (tmp_path / "data").iterdir():
        assert secret.encode() not in file.read_bytes(), file
    assert secret not in caplog.text
    assert secret not in repr(made)
    assert secret not in repr(listed)
    assert made.token not in str(listed)
    info = next(each for each in listed if each.name == "shop")
    assert info.allow == ["orders.*:push,pop"]
    assert info.expires_at == made.expires_at


def test_files_are_for_the_user_of_the_broker_alone(tmp_path: Path) -> None:
    data = tmp_path / "data"
    old = os.umask(0o022)
    broker = GuardedBroker(data=str(data))
    try:
        os.umask(old)
        with nexo.connect(broker.url, token=broker.token("*:*")) as admin:
            admin.create_queue("orders")
        assert stat.S_IMODE(data.stat().st_mode) == 0o700
        holding = [each for each in data.iterdir() if each.suffix not in (".lock", ".reserve")]
        assert {each.name for each in holding} >= {"journal.db", AUDIT_FILE}
        for file in holding:
            assert stat.S_IMODE(file.stat().st_mode) == 0o600, file
    finally:
        broker.stop()


def test_management_is_told_to_the_audit_log(tmp_path: Path) -> None:
    broker = GuardedBroker(data=str(tmp_path / "data"))
    try:
        minted = broker.mint("*:push,pop,manage")
        with nexo.connect(broker.url, token=minted.token) as client:
            client.create_queue("orders")
            client.queue("orders", create=True).push("x")
            client.queue("orders").purge()
            with pytest.raises(nexo.Forbidden):
                client.create_token("mine", ["*:*"])
            with pytest.raises(nexo.QueueNotFound):
                client.queue("none").delete()
        told = [(each.action, each.resource, each.outcome) for each in broker.audit()]
    finally:
        broker.stop()
    assert told == [
        ("delete_queue", "none", "queue_not_found"),
        ("create_token", "mine", "forbidden"),
        ("purge", "orders", "done"),
        ("create_queue", "orders", "done"),
    ]
