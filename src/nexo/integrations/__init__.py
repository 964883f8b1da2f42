"""Adapters: Nexo in the task frameworks that people already use.

Lives here: one module for each framework, what they share, and the entry point of kombu.
May import: client; of the framework what its own adapters import. Through `nexo` alone.
Never: a rule of the broker, or a module that loads unless its framework is asked for it.
Enter at: `taskiq.NexoBroker`, `dramatiq.NexoBroker`, `kombu.Transport` (`nexo://` in Celery).
Tests: `tests/integrations/`, with the frameworks' own workers and a real broker.
"""
