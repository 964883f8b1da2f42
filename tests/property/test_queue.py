"""The rules of a queue against a plain model of it, in random lives of every kind of queue.

A failure prints the steps that lead to it, the shortest that were found. `make soak` runs the same
for much longer.
"""

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import rule, run_state_machine_as_test

from tests.property.claim_steps import ClaimSteps
from tests.property.draws import Profile
from tests.property.operator_steps import OperatorSteps

# A life that is checked at every step is slow by nature; hypothesis need not say so.
LIVES = settings(
    max_examples=150,
    stateful_step_count=50,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
# Hypothesis may take five minutes to find the shortest life that fails.
SHRINKING = pytest.mark.timeout(400)
LONG_LIVES = settings(LIVES, max_examples=5_000, stateful_step_count=120)


class Standard(OperatorSteps):
    profile = Profile(changed={"max_message_bytes": st.just(100)})


class Priorities(OperatorSteps):
    profile = Profile(priorities=(0, 3, 9))


class Fifo(OperatorSteps):
    profile = Profile(groups=("a", "b", "c", None), changed={"fifo": st.just(True)})


class Fair(OperatorSteps):
    profile = Profile(
        priorities=(0, 0, 0, 2),
        groups=("loud", "loud", "quiet", None),
        changed={"visibility_timeout_ms": st.just(200), "retransmit_timeout_ms": st.just(150)},
    )


class Deduplicated(OperatorSteps):
    profile = Profile(
        keys=("x", "y", "z", None),
        same_bodies=True,
        changed={
            "deduplication": st.sampled_from(["id", "content"]),
            "deduplication_window_ms": st.sampled_from([1, 30, 60]),
        },
    )


class Limited(OperatorSteps):
    """A receive rate and a maximum depth."""

    profile = Profile(
        changed={
            "max_receive_rate": st.sampled_from([0.5, 20.0, 50.0]),
            "max_depth": st.sampled_from([3, 12]),
        }
    )


class Claims(ClaimSteps):
    profile = Profile(priorities=(0, 0, 5))


class FifoClaims(ClaimSteps):
    profile = Profile(groups=("a", "b", None), changed={"fifo": st.just(True)})


class Retention(OperatorSteps):
    """Messages grow too old while they wait, are worked on, or wait for another attempt."""

    profile = Profile(
        priorities=(0, 0, 4),
        groups=(None, None, None, "a"),
        changed={"retention_ms": st.just(1_000), "visibility_timeout_ms": st.just(1_500)},
    )

    @rule(wait=st.sampled_from([150, 400]))
    def much_later(self, wait: int) -> None:
        self.wait(wait, run_due=True, sleep=False)


class FifoRetention(Retention):
    """The same behind groups that are locked."""

    profile = Profile(
        groups=("a", "b", None),
        changed={
            "fifo": st.just(True),
            "retention_ms": st.just(1_000),
            "visibility_timeout_ms": st.just(1_500),
        },
    )


KINDS = [
    Standard,
    Priorities,
    Fifo,
    Fair,
    Deduplicated,
    Limited,
    Claims,
    FifoClaims,
    Retention,
    FifoRetention,
]
each_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)


@SHRINKING
@each_kind
def test_rules_agree_with_the_model(kind: type[OperatorSteps]) -> None:
    run_state_machine_as_test(kind, settings=LIVES)


@pytest.mark.soak
@pytest.mark.timeout(3 * 3600)
@each_kind
def test_rules_agree_with_the_model_for_long(kind: type[OperatorSteps]) -> None:
    run_state_machine_as_test(kind, settings=LONG_LIVES)
