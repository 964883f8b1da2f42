"""A view that pushes a message on commit: a rolled-back order is never announced."""

from functools import cache
from typing import Any

from django.db import connection, transaction
from django.http import HttpRequest, JsonResponse

import nexo

QUEUE = "orders"


@cache
def orders() -> nexo.Queue:
    """One client for the process: threads share it, and a forked child connects by itself."""
    return nexo.connect().queue(QUEUE, create=True)


def announce(order: dict[str, Any]) -> None:
    """Called when the transaction is committed. Should the push fail, the order is in the database
    all the same: a job of yours that looks for what was not announced closes that gap."""
    orders().push(order)


def take_order(request: HttpRequest) -> JsonResponse:
    item = request.POST["item"]
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY, item TEXT)")
            cursor.execute("INSERT INTO orders (item) VALUES (%s)", [item])
            order = {"id": cursor.lastrowid, "item": item}
        transaction.on_commit(lambda: announce(order))
        if item == "nothing":
            raise ValueError("nobody can buy that")  # rolled back, so nobody is told
    return JsonResponse(order, status=201)
