"""The demo: starts everything that `examples.gps` has, shows it, kills some of it, and checks it.

run.py         from the start to the accounting
stage.py       the processes: broker, fleet, Spark, workers; who dies is started again
process.py     one of them
strikes.py     what is killed, and when
happenings.py  what happened, to be told
look.py        the figures of a moment
watch.py       takes a look twice a second
view.py        the figures in a terminal; panels.py has its parts
lines.py       the figures where there is no terminal
verdict.py     the accounting, told
"""
