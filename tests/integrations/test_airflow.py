"""Airflow's provider, on stand-ins for the two classes of Airflow that it inherits from: Airflow
itself has several hundred dependencies, and they do not go together with ours."""

from __future__ import annotations

import asyncio
import importlib
import sys
import types
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

import pytest

from nexo.integrations.airflow_entry import get_provider_info
from tests.client.eventually import eventually

if TYPE_CHECKING:
    import nexo
    from nexo.testing import Broker


@pytest.fixture
def adapter(monkeypatch: pytest.MonkeyPatch) -> Any:
    class TriggerEvent:
        def __init__(self, payload: Any) -> None:
            self.payload = payload

    provider = "airflow.providers.common.messaging.providers.base_provider"
    stand_ins: dict[str, dict[str, Any]] = {
        provider: {"BaseMessageQueueProvider": object},
        "airflow.triggers.base": {"BaseEventTrigger": object, "TriggerEvent": TriggerEvent},
    }
    for name, content in stand_ins.items():
        module = types.ModuleType(name)
        vars(module).update(content)
        for end in range(1, name.count(".") + 1):
            parent = name.rsplit(".", end)[0]
            monkeypatch.setitem(sys.modules, parent, types.ModuleType(parent))
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.delitem(sys.modules, "nexo.integrations.airflow", raising=False)
    return importlib.import_module("nexo.integrations.airflow")


def test_airflow_finds_it(adapter: Any) -> None:
    (found,) = entry_points(group="apache_airflow_provider")
    assert found.load() is get_provider_info
    (queue,) = get_provider_info()["queues"]
    provider = getattr(adapter, queue.rpartition(".")[2])()
    assert provider.scheme == "nexo"
    assert provider.trigger_class() is adapter.NexoTrigger


def test_an_event_for_each_message(
    adapter: Any, broker: Broker, client: nexo.Client, name: str
) -> None:
    queue = client.queue(name, create=True)
    ids = [queue.push({"id": 1}, attributes={"k": "v"}), queue.push(b"\xff"), queue.push("third")]
    path, given = adapter.NexoTrigger(name, broker.url).serialize()
    assert path == "nexo.integrations.airflow.NexoTrigger"

    async def scenario() -> list[Any]:
        events = adapter.NexoTrigger(**given).run()
        found = [(await anext(events)).payload for _ in range(3)]
        await events.aclose()
        return found

    first, second, _ = asyncio.run(scenario())
    told = {"id": ids[0], "text": '{"id":1}', "queue": name, "attempts": 1}
    assert first == {**told, "attributes": {"k": "v"}}
    assert (second["text"], second["base64"]) == (None, "/w==")
    # The third was not taken when the trigger ended, so it comes again, and that is no attempt.
    eventually(lambda: (queue.info().acked, queue.info().ready) == (2, 1))
    assert queue.info().nacked == 0
