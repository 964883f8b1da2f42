"""A fleet that reports where it is, and all that Nexo does with it.

    python -m examples.gps              until Ctrl-C; `nexo demo` and `make demo` are the same
    python -m examples.gps --seconds 60 --chaos

Vehicles send a position each second: some over UDP, some through the SQS API, some with the native
client. A Spark job cleans them, keeps them in a lake, computes speed and stops of each vehicle in
windows of event time, and pushes an alert for what is not as it should be. Workers handle the
alerts; some fail, are tried again, and end as dead letters. At the end every position and every
alert is accounted for, although processes were killed on the way.

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
