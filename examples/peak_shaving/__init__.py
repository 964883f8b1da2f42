"""Peak shaving: 10,000 orders per second arrive, the database takes 1,000, and none is lost.

    python -m examples.peak_shaving --seconds 20

For a short time more orders arrive than the database can store. They are pushed to a queue whose
`max_receive_rate` is the limit of the database, so the broker delivers them no faster, and a
`nexo.Worker` stores them. The database never sees the peak: the queue grows, then drains.

The program shows arrivals, departures and depth live, draws them as a chart, and checks at the end
that every pushed order is stored or still waiting. If not, the exit code is 1.

    orders.py     pushes the orders     database.py   stores them, and refuses too many
    broker.py     starts a broker       course.py     measurements over time
    view.py       the live view         plot.py       the chart
"""
