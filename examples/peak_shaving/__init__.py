"""Peak shaving: 10,000 orders a second arrive, the database takes 1,000, and nothing is lost.

    python -m examples.peak_shaving --seconds 20

A peak of orders comes in, far above what the database can store. They are pushed to a queue whose
`max_receive_rate` is the database's limit, so the broker gives them out no faster; a `nexo.Worker`
stores what it is given. The peak becomes a plateau: the database never sees it, and the queue
grows, then drains.

It shows arrivals, departures and depth while it runs, draws them as a picture, and ends with an
accounting: what was pushed is stored or still waiting, or the exit code is 1.

    orders.py     who pushes            database.py   who stores, and refuses what is too much
    broker.py     a broker of its own   course.py     what was seen, and when
    view.py       the live view         plot.py       the picture
"""
