"""The worker: calls a function in the form of AWS Lambda with the messages of a queue.

Lives here: `Worker`, the event and context that a handler gets, how its answer is read, the threads
    and processes that handlers run in.
May import: the rest of client, wire, vocabulary; threads, processes, and asyncio for handlers that
    are coroutines.
Never: a rule of the broker, or a message that is acked before its handler has returned.
Enter at: `worker.Worker`, which is `nexo.Worker`.
Tests: `tests/client/worker/`, and `tests/cli/test_worker.py` with the installed command.
"""
