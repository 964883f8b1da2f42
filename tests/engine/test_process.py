"""No search for garbage looks at everything, and none is left for ever: in a process of its own."""

import subprocess
import sys

import pytest

BEGIN = """
import gc, weakref
from nexo.engine import process
from nexo.engine.process import Collector, tune_process

process.COLLECTED_OBJECTS_MAX = {most}
looked = []

def count(phase, info):
    if phase == "start":
        looked.append(sum(len(gc.get_objects(generation=each)) for each in range(3)))

class Thing:
    def __init__(self):
        self.itself = self

tune_process()
held = [[] for _ in range({held})]
collector = Collector()
collector.begin()
gc.callbacks.append(count)  # after the collector's own
"""

GROWN = """
held += [[] for _ in range(400_000)]
assert len(looked) > 100, looked
assert max(looked) < 30_000, max(looked)
"""

YOUNG_CYCLES = """
things = [weakref.ref(Thing()) for _ in range(50_000)]
assert sum(each() is not None for each in things) < 30_000
"""

OLD_CYCLE = """
thing = Thing()
alive = weakref.ref(thing)
held += [[] for _ in range(300_000)]
del thing
more = [[] for _ in range(300_000)]
assert alive() is not None, "it was not put aside: the test tests nothing"
collector.idle()
assert alive() is None
del looked[:]
more += [[] for _ in range(100_000)]
collector.idle()
assert max(looked) < 30_000, "everything is looked at again though little came"
"""

SMALL = """
thing = Thing()
alive = weakref.ref(thing)
more = [[] for _ in range(90_000)]
del thing
for _ in range(3):
    more = None
    more = [[] for _ in range(90_000)]
assert alive() is None, "what is little is not looked at as a whole"
"""


@pytest.mark.parametrize(
    ("script", "most", "held"),
    [
        (GROWN, 100_000, 300_000),
        (YOUNG_CYCLES, 100_000, 300_000),
        (OLD_CYCLE, 100_000, 100_000),
        (SMALL, 1_000_000, 1_000),
    ],
    ids=["grown", "young cycles", "old cycle", "small"],
)
def test_the_collector(script: str, most: int, held: int) -> None:
    program = BEGIN.format(most=most, held=held) + script
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=50, check=False
    )
    assert ran.returncode == 0, ran.stderr
