"""Filter policies are asked when messages come in, in steps of bounded work: the commit that gives
the messages to queues finds the verdicts ready."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest

from nexo.engine.topic_actor import TopicActor
from nexo.machine.bind import Looks
from nexo.vocabulary import limits
from nexo.vocabulary.batch import batch_of
from nexo.vocabulary.filter_policy import BODY, Policy, compiled
from nexo.vocabulary.sns import Subscription
from tests.engine.rig import Rig, bodies, peeked
from tests.engine.virtual_time import settle

if TYPE_CHECKING:
    from nexo.engine.engine import Engine
    from nexo.machine.bind import Verdicts
    from nexo.vocabulary.filter_policy import Looked

POLICY = json.dumps({"kind": ["wanted"]})
WANTED, OTHER = json.dumps({"kind": "wanted"}), json.dumps({"kind": "other"})


async def bound(rig: Rig) -> Engine:
    engine = await rig.start()
    await engine.create_topic("t")
    await engine.create_queue("q")
    await engine.bind("t", "q", sns=subscription(POLICY))
    return engine


def subscription(policy: str) -> Subscription:
    return Subscription(filter_policy=policy, filter_scope=BODY)


async def test_a_commit_asks_no_policy(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = await bound(rig)
    in_commit, asked = [], []
    fan_out, wants = TopicActor.fan_out, Policy.wants

    def watched_fan_out(self: TopicActor) -> None:
        in_commit.append(1)
        fan_out(self)
        in_commit.pop()

    def watched_wants(self: Policy, looked: Looked) -> bool:
        asked.append(bool(in_commit))
        return wants(self, looked)

    monkeypatch.setattr(TopicActor, "fan_out", watched_fan_out)
    monkeypatch.setattr(Policy, "wants", watched_wants)
    await engine.topic("t").publish(bodies(WANTED, OTHER, WANTED))
    assert asked == [False, False], "of each body once, and not in the commit"
    await engine.topic("t").publish(bodies(OTHER))
    assert await peeked(engine.queue("q")) == [WANTED, WANTED]


@pytest.mark.parametrize("step_work", [1, 60, 100_000])
async def test_what_takes_several_steps_is_not_overtaken(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, step_work: int
) -> None:
    monkeypatch.setattr("nexo.engine.topic_actor.FILTERED_STEP_WORK", step_work)
    monkeypatch.setattr(limits, "FILTERED_STEP_WORK", step_work)
    engine = await bound(rig)
    topic = engine.topic("t")
    texts = [json.dumps({"kind": "wanted", "number": number}) for number in range(12)]
    publishing = [topic.publish(bodies(*texts[:9]))]
    await asyncio.sleep(0)
    publishing += [topic.publish(bodies(text)) for text in texts[9:]]
    offsets = await asyncio.gather(*publishing)
    assert offsets == [(0, 9), (9, 10), (10, 11), (11, 12)]
    assert await peeked(engine.queue("q")) == texts


async def test_who_gives_up_holds_up_nobody(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nexo.engine.topic_actor.FILTERED_STEP_WORK", 1)
    monkeypatch.setattr(limits, "FILTERED_STEP_WORK", 1)
    engine = await bound(rig)
    topic = engine.topic("t")
    first, second = topic.publish(bodies(WANTED, OTHER)), topic.publish(bodies(WANTED))
    first.cancel()
    second.cancel()
    await settle()
    last = json.dumps({"kind": "wanted", "number": 1})
    await topic.publish(bodies(last))
    assert (await peeked(engine.queue("q")))[-1] == last


async def test_a_policy_of_another_time_is_asked_too(rig: Rig) -> None:
    """It changes between the publish and its commit."""
    engine = await bound(rig)
    rig.runner.is_held = True
    publishing = engine.topic("t").publish(bodies(WANTED, OTHER))
    changing = asyncio.ensure_future(
        engine.bind("t", "q", sns=subscription(json.dumps({"kind": ["other"]})))
    )
    rig.runner.release()
    await asyncio.gather(publishing, changing)
    await engine.topic("t").publish(bodies(WANTED, OTHER))
    assert (await peeked(engine.queue("q")))[-1] == OTHER


def test_steps_have_bounded_work() -> None:
    """A thousand bodies that take long, by ten policies."""
    held = [f'{{"a": [{", ".join(map(str, range(n, n + 40)))}]}}'.encode() for n in range(1_000)]
    policies = [
        compiled(json.dumps({"a": [{"prefix": f"{n}-{m}"} for m in range(100)]}), BODY)
        for n in range(10)
    ]
    verdicts: Verdicts = {}
    looks = Looks(batch_of(held), verdicts)
    seen = [looks.work for _ in looks.judge([each for each in policies if each], 1_000)]
    steps = [after - before for before, after in zip([0, *seen], seen, strict=False)]
    assert len(steps) > 100
    most = limits.FILTERED_STEP_WORK + limits.FILTERED_WORK_MAX
    assert max(steps) <= most, f"{max(steps):,} in one step"
    assert steps[0] <= 1_000 + 40 * 100 * 8 + 2_000
    assert len(verdicts) == 10_000
