"""The shipped extender as a process of its own, over the benchmark's cluster, in plain HTTP. Prints its port."""

import asyncio

import uvloop

from extender.collector import quiet_the_collector
from extender.pods.placement import Placement
from extender.serve.extender import Extender
from extender.serve.metrics import Metrics
from extender.serve.server import Server
from tests.bench._cluster import known

BODY_BYTES_MAX = 8 << 20


class _Fine:
    def live(self) -> str:
        return ""

    def ready(self) -> str:
        return ""

    def dump(self) -> bytes:
        return b"{}"


async def serve() -> None:
    """Answer until killed."""
    books, engine = known()
    extender = Extender(Placement(books, engine))
    server = Server(
        extender={
            "/scheduler/filter": extender.filter,
            "/scheduler/prioritize": extender.prioritize,
            "/scheduler/preempt": extender.preempt,
        },
        webhooks={},
        health=_Fine(),
        metrics=Metrics(),
        body_max={"extender": BODY_BYTES_MAX, "webhook": 0},
    )
    await server.start({"extender": 0, "webhook": 0, "http": 0}, host="127.0.0.1", tls={})
    quiet_the_collector()
    print(server.ports["extender"], flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(serve())
