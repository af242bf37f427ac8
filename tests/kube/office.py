"""Candidates for a lease, on a clock and a store of the test's own."""

import re

import orjson

from extender.kube.lease import Leader
from extender.model.errors import Conflict, Gone, Unreachable

MICRO_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")


class Store:
    """One Lease, guarded by its version, on a network that can fail."""

    def __init__(self):
        self.lease = None
        self.version = 0
        self.down = False
        self.lose_answers = False
        self.timeouts = []
        self.writes = []
        self.hold = lambda: None

    async def get(self, path, *, timeout_s=None):
        self._reach(timeout_s)
        if self.lease is None:
            raise Gone("no lease", status=404)
        return orjson.dumps(self.lease)

    async def post(self, path, body, *, timeout_s=None):
        self._reach(timeout_s)
        if self.lease is not None:
            raise Conflict("exists", status=409)
        return self._store(orjson.loads(body))

    async def patch(self, path, body, *, kind, field_manager="", timeout_s=None):
        self._reach(timeout_s)
        asked = orjson.loads(body)
        if self.lease is None or asked["metadata"]["resourceVersion"] != str(self.version):
            raise Conflict("changed", status=409)
        return self._store({**self.lease, "spec": {**self.lease["spec"], **asked["spec"]}})

    def _reach(self, timeout_s):
        self.timeouts.append(timeout_s)
        if self.down:
            raise Unreachable("no route")

    def _store(self, lease):
        self.version += 1
        lease["metadata"]["resourceVersion"] = str(self.version)
        self.lease = lease
        self.writes.append(lease["spec"])
        self.hold()
        if self.lose_answers:
            raise Unreachable("no answer")
        return orjson.dumps(lease)

    @property
    def spec(self):
        return self.lease["spec"]


def candidate(store, clock, name, told=None, **options):
    return Leader(
        store,
        identity=name,
        namespace="cohort-system",
        name="cohort-extender",
        on_change=(told if told is not None else []).append,
        clock=clock,
        wall_clock=lambda: 1772353815.0,
        sleep=clock.sleep,
        randomness=lambda: 0.5,
        **options,
    )


async def step(*leaders):
    """One attempt of each, in order."""
    for leader in leaders:
        await leader._step()
        leader._announce()
