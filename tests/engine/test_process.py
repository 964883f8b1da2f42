"""No search for garbage looks at everything: in a process of its own."""

import subprocess
import sys

import pytest

BEGIN = """
import gc, weakref
from nexo.engine.process import Collector, tune_process

looked = []

def count(phase, info):
    if phase == "start":
        looked.append(sum(len(gc.get_objects(generation=each)) for each in range(3)))

class Thing:
    def __init__(self):
        self.itself = self

tune_process()
held = [[] for _ in range(300_000)]
collector = Collector()
collector.begin()
gc.callbacks.append(count)  # after the collector's own
"""

GROWN = """
held += [[] for _ in range(400_000)]
assert len(looked) > 100, looked
assert max(looked) < 30_000, max(looked)
"""

GONE_AND_COME = """
for _ in range(6):
    held = None
    held = [[] for _ in range(200_000)]
assert max(looked) < 30_000, "what was put aside is looked at again"
"""

YOUNG_CYCLES = """
things = [weakref.ref(Thing()) for _ in range(50_000)]
assert sum(each() is not None for each in things) < 30_000
"""

OLD_CYCLE = """
thing = Thing()
alive = weakref.ref(thing)
more = [[] for _ in range(8_000)]
del thing
for _ in range(6):
    more = None
    more = [[] for _ in range(8_000)]
assert alive() is None, "little is put aside though it could be looked at"
"""


@pytest.mark.parametrize(
    "script",
    [GROWN, GONE_AND_COME, YOUNG_CYCLES, OLD_CYCLE],
    ids=["grown", "gone and come", "young cycles", "old cycle"],
)
def test_the_collector(script: str) -> None:
    program = BEGIN + script
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=50, check=False
    )
    assert ran.returncode == 0, ran.stderr
