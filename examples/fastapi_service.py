"""A web service that writes orders to a topic, and counts in the background what it reads there.

An order is answered when it is on disk. The totals need no database: each start counts the whole topic again.

    tidelog topic create orders --partitions 3
    pip install fastapi uvicorn
    uvicorn --app-dir examples fastapi_service:app
    curl http://127.0.0.1:8000/orders -H 'Content-Type: application/json' -d '{"item": "tea", "count": 2}'
    curl http://127.0.0.1:8000/totals

`TIDELOG_BOOTSTRAP` names the brokers, unless they are at http://127.0.0.1:8082.
"""

import asyncio
import os
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field

from tidelog.consumer import Consumer
from tidelog.model.errors import TidelogError
from tidelog.producer import Producer

BOOTSTRAP = os.environ.get("TIDELOG_BOOTSTRAP", "http://127.0.0.1:8082")


class Order(BaseModel):
    """An order, as clients post it and as the topic keeps it."""

    item: str
    count: int = Field(gt=0)


async def count(consumer: Consumer, totals: Counter[str]) -> None:
    async for record in consumer:
        order = Order.model_validate_json(record.value or b"")
        totals[order.item] += order.count


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Connects before the first request, and delivers what was sent before the service ends."""
    consumer = Consumer("orders", bootstrap_servers=BOOTSTRAP, auto_offset_reset="earliest")
    async with Producer(BOOTSTRAP) as app.state.producer, consumer:
        app.state.totals = Counter()
        app.state.counting = asyncio.create_task(count(consumer, app.state.totals))
        yield
        app.state.counting.cancel()
        await asyncio.wait([app.state.counting])


app = FastAPI(lifespan=lifespan)


@app.post("/orders", status_code=201)
async def take(order: Order, request: Request) -> dict[str, int]:
    """Answers when the order is on disk. Orders of one item stay in their order."""
    value = order.model_dump_json().encode()
    written = await request.app.state.producer.send_and_wait("orders", value, key=order.item.encode())
    return {"partition": written.partition, "offset": written.offset}


@app.get("/totals")
async def totals(request: Request) -> dict[str, int]:
    """Answers what was counted so far, or fails as the counting has failed."""
    if request.app.state.counting.done():
        request.app.state.counting.result()
    return dict(request.app.state.totals)


@app.exception_handler(TidelogError)
async def refuse(_: Request, error: TidelogError) -> JSONResponse:
    """Tells whether the order may be sent again without being taken twice."""
    taken = "no" if error.definite else "unknown"
    return JSONResponse({"error": error.message, "taken": taken}, status_code=error.status)
