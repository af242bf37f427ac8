"""The shipped listeners as a process of its own, for tests that look at its memory. Prints its two ports."""

import asyncio

import uvloop

from extender.collector import quiet_the_collector
from extender.jobs.kinds import kinds_of
from extender.pods.placement import Placement
from extender.serve import parents
from extender.serve.extender import Extender
from extender.serve.jobs import JobWebhook
from extender.serve.metrics import Metrics
from extender.serve.server import Server
from extender.serve.webhook import Webhook
from tests.bench._cluster import known
from tests.serve.doubles import FakeHealth
from tests.serve.guard_cases import WRITER

EXTENDER = ("/scheduler/filter", "/scheduler/prioritize", "/scheduler/preempt")
WEBHOOKS = ("/webhooks/mutate-pods", "/webhooks/validate-pods", "/webhooks/mutate-jobs", "/webhooks/mutate-parents")
BODY_MAX = {"extender": 8 << 20, "webhook": 7 << 20}
"""As in the service."""


async def serve() -> None:
    """Answer until killed."""
    books, engine = known()
    extender, webhook = Extender(Placement(books, engine)), Webhook(books, writer=WRITER)
    jobs = JobWebhook(books, kinds_of(("JobSet",), ()))
    server = Server(
        extender=dict(zip(EXTENDER, (extender.filter, extender.prioritize, extender.preempt), strict=True)),
        webhooks=dict(zip(WEBHOOKS, (webhook.mutate, webhook.validate, jobs.mutate, parents.mutate), strict=True)),
        health=FakeHealth(),
        metrics=Metrics(),
        body_max=BODY_MAX,
    )
    await server.start({"extender": 0, "webhook": 0, "http": 0}, host="127.0.0.1", tls={})
    quiet_the_collector()
    print(server.ports["extender"], server.ports["webhook"], flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(serve())
