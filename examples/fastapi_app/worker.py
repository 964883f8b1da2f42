"""Packs orders until Ctrl-C: `python -m examples.fastapi_app.worker`."""

import logging

import nexo
from examples.fastapi_app.order import QUEUE, Order


def pack(order: Order) -> None:
    print(f"packed {order.count} x {order.item}", flush=True)


def main() -> None:
    logging.basicConfig(level=logging.INFO)  # failures with their traceback, lost connections
    with nexo.connect() as client:
        client.queue(QUEUE, create=True).consume(pack, concurrency=4)


if __name__ == "__main__":
    main()
