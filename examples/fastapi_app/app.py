"""A web app that accepts orders, and a worker that packs them.

    uvicorn examples.fastapi_app.app:app        # POST /orders is answered when it is on disk
    python -m examples.fastapi_app.worker       # in another terminal

The same model is used from the request to the worker: FastAPI validates it, `push` encodes it, and
the handler of the worker receives it decoded, because of its annotation.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request

import nexo
from examples.fastapi_app.order import QUEUE, Order


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    async with nexo.connect_async() as client:  # $NEXO_URL, else this machine
        app.state.nexo = client
        app.state.orders = client.queue(QUEUE, create=True)
        yield


app = FastAPI(title="Orders", lifespan=lifespan)


@app.post("/orders", status_code=202)
async def take_order(order: Order, request: Request) -> dict[str, str]:
    """Answered once the order is on disk: from then on it is not lost."""
    return {"id": await request.app.state.orders.push(order, priority=9 if order.express else 0)}


@app.get("/health")
async def health(request: Request) -> dict[str, bool]:
    return {"broker": request.app.state.nexo.connected}
