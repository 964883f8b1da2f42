"""The rules, pure: what happens to messages, and nothing else.

Lives here: queue rules (one file per operation), topic rules, the catalog, images, invariants.
May import: vocabulary.
Never: performs I/O, awaits, reads a clock or draws chance; all of them come in as arguments.
Enter at: `queue.Queue` (the state) and `push.push` (the first thing that happens to it).
Tests: `tests/property/`, `tests/unit/machine/`, and the simulation.
"""
