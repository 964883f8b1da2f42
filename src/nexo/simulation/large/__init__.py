"""Worlds of size: few things happen, to much at once, and every step is held to a bound.

Lives here: shapes (what is large), the site they work on, the world that runs one of them.
May import: the rest of simulation, engine, machine, vocabulary.
Never: lets the size of a shape excuse the cost of a step.
Enter at: `world.LargeWorld`; `shapes.SHAPES` lists what there is.
Tests: `tests/simulation/test_large.py`.
"""
