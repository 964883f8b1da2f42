"""Who lives in a world: producers, consumers, Spark drivers, publishers, readers, operators.

Lives here: actors that draw what they do from the seed, and go on after a crash of the broker.
May import: simulation's witnesses, and the engine only through them; vocabulary.
Never: checks anything; that is the ledger's work.
Enter at: `stage.Stage`, which every actor is given.
Tests: `tests/simulation/`.
"""
