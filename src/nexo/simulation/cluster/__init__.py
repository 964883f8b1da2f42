"""Seeded clusters: real nodes, placement and engines over a database that fences, in virtual time.

Lives here: processes that sleep and die, cuts between them, the tables in memory, clients, checks.
May import: cluster, simulation, engine, journal, machine, vocabulary.
Never: opens a socket, starts a thread, or draws chance from anything but the seed.
Enter at: `world.ClusterWorld`; `python -m nexo.simulation --cluster` runs many.
Tests: `tests/simulation/test_cluster.py`.
"""
