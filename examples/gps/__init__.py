"""The demo: a vehicle fleet that sends its positions, processed with all parts of Nexo.

    python -m examples.gps              until Ctrl-C; `nexo demo` and `make demo` are the same
    python -m examples.gps --seconds 60 --chaos

Each vehicle sends a position per second: some over UDP, some with the SQS API, some with the Nexo
client. A Spark job cleans the positions, stores them in a lake, computes the speed and stops of
each vehicle in windows of event time, and pushes alerts. Workers handle the alerts; some fail, are
retried, and become dead letters. At the end the program checks that no position and no alert was
lost, although processes were killed during the run.

    names.py      queues and topics           position.py   what is sent
    vehicle.py    how a vehicle moves         fleet.py      the process that sends
    by_udp.py, by_sqs.py, by_native.py        the three ways to the broker
    tally.py      what was confirmed, on disk
    motion.py     clean, speed, stops, alerts: DataFrames in, DataFrames out
    pipeline.py   the process that runs Spark
    dispatch.py   the process that handles alerts
    lake.py       what is in the lake, without Spark
    accounting.py whether all is there
    demo/         starts, shows, kills and checks all of this

Only the public names of Nexo are used here: this is how a program of yours could look.
"""
