"""Three nodes over one PostgreSQL under load, while one of them is killed: `nexo demo --cluster`.

postgresql.py  a PostgreSQL of its own, from a wheel or from the system's packages
nodes.py       the nodes, as processes
traffic.py     producers and consumers, and what they were told
verdict.py     the accounting
__main__.py    from the start to the accounting

It uses the public names of Nexo alone, as a user's program would.
"""
