"""Seeded worlds: the real engine, rules and journal, driven through faults in virtual time.

Lives here: virtual loop, simulated disk and journal, workloads, the ledger that checks promises.
May import: engine, journal, machine, vocabulary; apsw, for the disk's faults; cluster, in
`simulation.cluster`.
Never: sleeps, opens a socket or a file, or draws chance from anything but the seed.
Enter at: `world.World`; `python -m nexo.simulation` runs many.
Tests: `tests/simulation/`.
"""
