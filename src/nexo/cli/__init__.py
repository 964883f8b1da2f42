"""The command line: everything a person does with a broker, as `nexo`.

Lives here: a file for each command or noun, the flags they share, how answers and failures are
    shown.
May import: client, server, pipeline, query, spark, engine, journal, access, wire, vocabulary;
    typer, rich and textual. All but vocabulary only inside the command that needs them:
    `nexo --help` and `nexo push` start without a broker's weight.
Never: a rule of queues, or a way around the client to a running broker.
Enter at: `main.main`.
Tests: `tests/cli/` runs the installed command against real brokers.
"""
