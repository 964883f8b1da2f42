import pytest
from hypothesis import HealthCheck, settings, strategies as st
from hypothesis.stateful import run_state_machine_as_test
from tests.property.draws import Profile
from tests.property.steps import QueueSteps

class Standard(QueueSteps):
    profile = Profile()
class Priorities(QueueSteps):
    profile = Profile(priorities=(0, 3, 9))
class Fifo(QueueSteps):
    profile = Profile(groups=("a","b",None), changed={"fifo": st.just(True)})
class Fair(QueueSteps):
    profile = Profile(groups=("a","a","b",None), priorities=(0,0,0,2))
MACHINES=[Standard,Priorities,Fifo,Fair]
@pytest.mark.parametrize("machine", MACHINES)
def test_rules(machine):
    run_state_machine_as_test(machine, settings=settings(max_examples=60, stateful_step_count=50, deadline=None, suppress_health_check=list(HealthCheck)))
