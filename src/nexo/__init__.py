"""Nexo: a durable message broker. Queues with SQS semantics, topics, and a Spark pipeline.

Lives here: the rooms of the product, one package each, and its version.
May import: nothing; opening the package must stay free of cost for those who want one room of it.
Never: rules, I/O or state of its own.
Enter at: `nexo.testing.broker()` for a broker in your own process.
Tests: `tests/`, in folders by kind; `tests/tidy/` holds the tree itself to the house rules.
"""

__version__ = "0.1.0"
