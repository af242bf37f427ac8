"""Runs a reflector: lists and watches one kind of object and hands the facts over, in slices that never hold the loop.

One task per resource, for ever. It ends only when it is cancelled or when the sink raises: then our own state is in
doubt, and the whole is rebuilt from lists.
"""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Final, Protocol, TypeVar

from extender.kube.client import Page
from extender.kube.reflector import SILENCE_S, Counters, Do, Reflector
from extender.kube.resources import KUEUE_GROUP, Resource
from extender.model.errors import ExtenderError, Gone, UserError
from extender.model.events import Event
from extender.turns import Turns

SLICE_S: Final = 0.0005
"""How long decoding goes on before what came of it is handed over, which takes about twice as long."""
SLICE_ITEMS_MAX: Final = 12
OPENED_AT_ONCE_MAX: Final = 4
"""How many resources are listed at the same time: each holds a page in memory and keeps the API server busy."""
STREAM_MIN_S: Final = 300
STREAM_MAX_S: Final = 600

T = TypeVar("T")
Sink = Callable[[list[Event]], None]
Report = Callable[[str, str], None]
"""Told when a resource's problem changes: its name, and the problem in words, empty when all is well again."""


class Api(Protocol):
    """What a watcher needs of the client."""

    def pages(
        self, path: str, *, params: Mapping[str, str] | None = None, accept: str = "", limit: int = ...
    ) -> AsyncIterator[Page]:
        """The list at *path*, page by page."""

    def watch(
        self, path: str, *, params: Mapping[str, str] | None = None, accept: str = "", silence_s: float
    ) -> AbstractAsyncContextManager[AsyncIterator[list[bytes]]]:
        """Batches of lines of a watch."""


def _no_report(resource: str, problem: str) -> None:
    """Tell nobody."""


class Intake:
    """What the watchers of one event loop share, so that what each does in small slices does not add up.

    ``lists``: who may list now. ``turns``: one for each slice.
    """

    def __init__(self, turns: Turns | None = None) -> None:
        self.lists = asyncio.Semaphore(OPENED_AT_ONCE_MAX)
        self.turns = turns or Turns()


class Watcher:
    """Keeps one resource current. ``synced`` is set once its first list is complete.

    Follow ``age_s`` for readiness: how long ago the API server last gave a sign of life for it, by list, event or
    bookmark (one a minute even where nothing changes).
    """

    def __init__(
        self,
        api: Api,
        resource: Resource,
        sink: Sink,
        *,
        report: Report = _no_report,
        intake: Intake | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        randomness: Callable[[], float] = random.random,
        silence_s: float = SILENCE_S,
        page_items: int = 500,
    ) -> None:
        self.resource = resource
        self.synced = asyncio.Event()
        self.stall_s_max = 0.0
        self._api = api
        self._sink = sink
        self._report = report
        self._intake = intake or Intake()
        self._clock = clock
        self._sleep = sleep
        self._randomness = randomness
        self._silence_s = silence_s
        self._page_items = page_items
        self._machine = Reflector(resource.codec, randomness=randomness, optional=resource.optional)
        self._alive_s = clock()
        self._reported = ""
        self._waiting: list[asyncio.Event] = []
        self._hurry = asyncio.Event()
        self._stream: asyncio.Timeout | None = None

    @property
    def counters(self) -> Counters:
        """How often things happened since the start."""
        return self._machine.counters

    @property
    def problem(self) -> str:
        """Why the resource is not current, empty while it is."""
        return self._machine.problem

    @property
    def item_problems(self) -> Mapping[str, str]:
        """Per object, why it cannot be used."""
        return self._machine.item_problems

    @property
    def held(self) -> int:
        """How many objects are held."""
        return len(self._machine)

    def age_s(self) -> float:
        """Seconds since the newest sign of life."""
        return self._clock() - self._alive_s

    async def run(self) -> None:
        """List and watch until cancelled. Raises: what the sink raises."""
        machine = self._machine
        while True:
            if machine.delay_s > 0:
                await self._rest(machine.delay_s)
            try:
                if self._waiting:
                    machine.relist()
                if machine.todo is Do.LIST:
                    await self._list()
                else:
                    await self._watch_until_relist()
            except ExtenderError as error:
                if self.resource.optional and isinstance(error, Gone) and error.status == 404:
                    self._alive_s = (
                        self._clock()
                    )  # that there is no such resource is news too, and all there is to list
                    _set(self._waiting)
                    self._waiting.clear()
                machine.failed(self._in_words(error), self._clock())
            if machine.synced:
                self.synced.set()
            if machine.problem != self._reported:
                self._reported = machine.problem
                self._report(self.resource.name, machine.problem)

    async def relist(self) -> None:
        """List afresh, at once. When it returns, everything that was written before the call is known here."""
        listed = asyncio.Event()
        self._waiting.append(listed)
        self._hurry.set()
        async with self._intake.turns:  # to end a stream and to ask for a list is a piece of work, too
            if self._stream is not None and self._stream.when() is None and not listed.is_set():
                self._stream.reschedule(asyncio.get_running_loop().time())
        await listed.wait()

    async def _rest(self, delay_s: float) -> None:
        """Wait before the next attempt, but not when somebody has just asked for a list."""
        sleeper = asyncio.ensure_future(self._sleep(delay_s))
        hurrier = asyncio.ensure_future(self._hurry.wait())
        try:
            await asyncio.wait((sleeper, hurrier), return_when=asyncio.FIRST_COMPLETED)
        finally:
            sleeper.cancel()
            hurrier.cancel()

    async def _watch_until_relist(self) -> None:
        try:
            async with asyncio.timeout(None) as self._stream:
                await self._watch()
        except TimeoutError:
            if not self._waiting:
                raise
        finally:
            self._stream = None

    async def _list(self) -> None:
        waiting, self._waiting = self._waiting, []
        self._hurry.clear()
        try:
            async with self._intake.lists:
                await self._list_all()
        except BaseException:
            self._waiting = waiting + self._waiting
            raise
        _set(waiting)

    async def _list_all(self) -> None:
        machine, resource = self._machine, self.resource
        machine.list_started()
        version = ""
        limit = 0 if machine.whole else self._page_items
        async for page in self._api.pages(
            resource.path, params=resource.params, accept=resource.accept_list, limit=limit
        ):
            self._alive_s = self._clock()
            version = version or page.resource_version
            await self._in_slices(machine.listed, page.items)
        await self._in_slices(machine.lost, machine.unlisted())
        machine.list_ended(version)

    async def _watch(self) -> None:
        machine, resource = self._machine, self.resource
        params = {
            **resource.params,
            "watch": "1",
            "resourceVersion": machine.version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(STREAM_MIN_S + int((STREAM_MAX_S - STREAM_MIN_S) * self._randomness())),
        }
        async with self._api.watch(
            resource.path, params=params, accept=resource.accept, silence_s=self._silence_s
        ) as stream:
            self._alive_s = self._clock()
            machine.watch_opened(self._alive_s)
            self._clear_problem()
            async for lines in stream:
                self._alive_s = self._clock()
                await self._in_slices(machine.received, lines)
        machine.watch_ended(self._clock())

    def _clear_problem(self) -> None:
        self._machine.problem = ""
        if self._reported:
            self._reported = ""
            self._report(self.resource.name, "")

    async def _in_slices(self, step: Callable[[T], list[Event]], things: list[T]) -> None:
        """Take *things* one by one; hand over and let others run every ms. Facts before an error are kept."""
        taken = 0
        while taken < len(things):
            async with self._intake.turns:
                taken += self._slice(step, things, taken)

    def _slice(self, step: Callable[[T], list[Event]], things: list[T], first: int) -> int:
        """Take one slice of *things*, from *first* on; how many it was."""
        facts: list[Event] = []
        began_s, count = time.perf_counter(), 0
        try:
            for thing in things[first : first + SLICE_ITEMS_MAX]:
                facts += step(thing)
                count += 1
                if count % 4 == 0 and time.perf_counter() - began_s > SLICE_S:
                    break
        finally:
            self._deliver(facts)
            self.stall_s_max = max(self.stall_s_max, time.perf_counter() - began_s)
        return count

    def _deliver(self, facts: list[Event]) -> None:
        if facts:
            self._sink(facts)

    def _in_words(self, error: ExtenderError) -> ExtenderError:
        """The same error, saying what an administrator has to do about it."""
        resource = self.resource
        verb = "list" if self._machine.todo is Do.LIST else "watch"
        if isinstance(error, UserError) and error.status == 403:
            return UserError(
                f"may not {verb} {resource.name}: grant {resource.grant} to our service account, "
                "as ClusterRole cohort-extender does (manifests/base/rbac.yaml)",
                status=403,
            )
        if isinstance(error, Gone) and error.status == 404:
            ours = resource.path.startswith(f"/apis/{KUEUE_GROUP}/")
            cure = "apply manifests/crd" if ours else "install its CustomResourceDefinition, or leave the kind out"
            return Gone(
                f"cannot {verb} {resource.name}: the API server does not serve {resource.path}; {cure}", status=404
            )
        return error


def _set(events: list[asyncio.Event]) -> None:
    for event in events:
        event.set()
