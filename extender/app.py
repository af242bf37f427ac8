"""Wiring only: settings in, everything built, one TaskGroup, started and stopped in order.

Start: listeners first (a pod can be gated before anything else is known), then watches; who is synced runs for leader.
Stop: no more decisions, open writes finished, then the lease released (it is kept to its end if a write is still open),
requests answered for a while, listeners closed.
"""

import asyncio
import contextlib
import importlib
import os
import secrets
import signal
import socket
from collections.abc import Callable
from datetime import UTC, datetime

import msgspec
import orjson
import structlog
import uvloop

from extender.cert_api import CertApi
from extender.certs.keeper import ClientTrust, Keeper, server_context
from extender.certs.publish import Publisher
from extender.certs.sources import FileSource, SecretSource, Source
from extender.clock import DatedClock
from extender.collector import give_back, keep_what_is_held, quiet_the_collector
from extender.driver import Driver
from extender.engine.engine import Engine
from extender.jobs.placement import JobPlacement
from extender.jobs.shelf import Shelf
from extender.kube import resources
from extender.kube.client import ApiClient
from extender.kube.config import find_config
from extender.kube.lease import Leader, Timing
from extender.kube.watch import Intake, Watcher
from extender.kube.writer import WRITE_TIMEOUT_S, Outcome, Writer
from extender.model.effects import Effect
from extender.model.errors import ExtenderError, TransientError
from extender.model.names import Namespace
from extender.model.questions import PlacementQuestion, PreemptionQuestion
from extender.model.verdicts import FilterVerdict, NodeScore, NodeVictims
from extender.pods.placement import Placement
from extender.serve import parents
from extender.serve.extender import Extender
from extender.serve.guard_jobs import JobGuard
from extender.serve.jobs import JobWebhook
from extender.serve.metrics import Metrics
from extender.serve.server import Server
from extender.serve.webhook import Webhook
from extender.settings import Settings, read_settings, seconds
from extender.telemetry import Watchdog, set_up_logging
from extender.turns import Turns

STALE_S = 180.0
"""A resource that gave no sign of life for this long makes us unready; bookmarks come once a minute."""
WRITES_DRAIN_S = 5.0
FRESHEN_S_MAX = 5.0
"""How long a new leader waits at most for lists of quota objects; without those of what is admitted it never begins."""
GIVE_BACK_S = 10.0
VERSION_POLL_S = 60.0
"""How often we ask which version of Kueue's API is served."""
SERVICE = "cohort-extender"
LOADED_LATE = ("cryptography.hazmat.backends.openssl.backend", "encodings.idna")
"""What libraries load when it is first needed. That takes up to 10 ms, so we load it while nobody waits for us yet."""
BODY_BYTES_MAX = {"extender": 8 << 20, "webhook": 7 << 20}

log = structlog.get_logger()


def run(config: str | None, kubeconfig: str) -> None:
    """Run the service until SIGTERM or SIGINT. Raises: UserError, when the configuration is wrong."""
    settings = read_settings(config)
    set_up_logging(settings.log_level, settings.log_format)
    for name in LOADED_LATE:
        importlib.import_module(name)
    quiet_the_collector()  # before anybody waits for us: to look at all that was imported takes some 50 ms
    uvloop.run(App(settings, kubeconfig=kubeconfig).serve())


async def _keep_lean() -> None:
    """Give free memory back every few seconds, until cancelled."""
    while True:
        await asyncio.sleep(GIVE_BACK_S)
        give_back()


class _SyncedPlacement:
    """Answers once every watch has shown its first list; before that it refuses, clearly."""

    def __init__(self, placement: Placement, unsynced: Callable[[], list[str]]) -> None:
        self._placement = placement
        self._unsynced = unsynced

    def _check(self) -> Placement:
        missing = self._unsynced()
        if missing:
            raise TransientError(f"cohort-extender is starting: {', '.join(missing)} not listed yet")
        return self._placement

    def filter(self, question: PlacementQuestion) -> FilterVerdict:
        return self._check().filter(question)

    def prioritize(self, question: PlacementQuestion) -> list[NodeScore]:
        return self._check().prioritize(question)

    def preempt(self, question: PreemptionQuestion) -> dict[str, NodeVictims]:
        return self._check().preempt(question)


class App:
    """Everything of one replica."""

    def __init__(self, settings: Settings, *, kubeconfig: str = "") -> None:
        self._settings = settings
        self._config = find_config(os.environ, kubeconfig)
        self._namespace = os.environ.get("POD_NAMESPACE") or self._config.namespace or "default"
        # Two processes of one identity would both hold the lease; names of pods are unique, those of machines are not.
        self._identity = os.environ.get("POD_NAME") or f"{socket.gethostname()}_{secrets.token_hex(4)}"
        self._stopping = asyncio.Event()
        self._elected = asyncio.Event()

    async def serve(self) -> None:
        """Run until told to stop."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stopping.set)
        self._turns = Turns()
        client = ApiClient(self._config, user_agent=SERVICE, turns=self._turns)
        log.info("starting", server=self._config.server, namespace=self._namespace, identity=self._identity)
        try:
            version = await _kueue_version(client) or resources.KUEUE_VERSION
            self._build(client, version)
            await self._run(client, version)
        finally:
            await client.close()

    # --- building ---

    def _build(self, client: ApiClient, version: str) -> None:
        settings = self._settings
        self._metrics = Metrics()
        self._clock = DatedClock()
        self._watchdog = Watchdog()
        self._metrics.watch_loop(lag_s=self._watchdog.lag_s, held_s=self._watchdog.held_s)
        kinds = settings.kinds()
        self._books = Shelf(kinds)
        self._books.exclude(Namespace(self._namespace))
        self._engine = Engine(settings.policy())
        election = settings.leader_election
        timing = Timing(
            duration_s=int(seconds(election.lease_duration)),
            renew_deadline_s=seconds(election.renew_deadline),
            retry_period_s=seconds(election.retry_period),
        )
        self._leader = Leader(
            client,
            identity=self._identity,
            namespace=self._namespace,
            name=election.lease_name,
            on_change=self._office,
            report=_report_lease,
            timing=timing,
        )
        self._writer = Writer(
            client,
            self._outcome,
            may_write=self._leader.is_leader,
            has_ended=lambda uid: self._books.pod(uid) is None,
            queue_api=f"{resources.KUEUE_GROUP}/{version}",
            identity=self._identity,
            request_s_max=min(WRITE_TIMEOUT_S, timing.duration_s - timing.renew_deadline_s),
            turns=self._turns,
        )
        self._driver = Driver(
            engine=self._engine,
            books=self._books,
            submit=self._writer.submit,
            clock_ms=self._clock,
            meter=self._metrics,
            times=settings.times(),
            turns=self._turns,
        )
        jobs, intake = resources.jobs(kinds), Intake(self._turns)
        self._carriers = {"pods", *(resource.name for resource in jobs)}
        self._watchers = {
            resource.name: Watcher(client, resource, self._driver.take, report=_report, intake=intake)
            for resource in (*resources.everything(version), *jobs)
        }
        ca_file = settings.tls.client_ca_file
        self._contexts = {"extender": server_context(client_ca_file=ca_file), "webhook": server_context()}
        self._keeper = Keeper(
            self._certificate_source(client),
            self._contexts.values(),
            now=lambda: datetime.now(UTC),
            publisher=Publisher(CertApi(client)) if settings.tls.inject_ca_bundle else None,
            on_change=self._metrics.certificate,
            client_trust=ClientTrust(self._contexts["extender"], ca_file) if ca_file else None,
        )
        self._server = self._make_server()

    def _certificate_source(self, client: ApiClient) -> Source:
        tls = self._settings.tls
        if tls.cert_dir:
            return FileSource(tls.cert_dir)
        services = [SERVICE, f"{SERVICE}-webhook"]
        suffixes = ["", f".{self._namespace}", f".{self._namespace}.svc", f".{self._namespace}.svc.cluster.local"]
        names = [service + suffix for service in services for suffix in suffixes]
        return SecretSource(
            CertApi(client), namespace=self._namespace, name=tls.secret_name, names=[*names, *tls.names]
        )

    def _make_server(self) -> Server:
        extender = Extender(_SyncedPlacement(JobPlacement(self._books, self._engine), self._unsynced))
        writer = f"system:serviceaccount:{self._namespace}:{self._settings.service_account}"
        webhook = Webhook(self._books, writer=writer)
        jobs = JobWebhook(self._books, self._settings.kinds())
        return Server(
            extender={
                "/scheduler/filter": extender.filter,
                "/scheduler/prioritize": extender.prioritize,
                "/scheduler/preempt": extender.preempt,
            },
            webhooks={
                "/webhooks/mutate-pods": webhook.mutate,
                "/webhooks/validate-pods": webhook.validate,
                "/webhooks/mutate-jobs": jobs.mutate,
                "/webhooks/validate-jobs": JobGuard(writer=writer).validate,
                "/webhooks/mutate-parents": parents.mutate,
            },
            health=self,
            metrics=self._metrics,
            body_max=BODY_BYTES_MAX,
            turns=self._turns,
        )

    # --- running ---

    async def _run(self, client: ApiClient, version: str) -> None:
        ports = self._settings.ports
        wanted = {"extender": ports.extender, "webhook": ports.webhook, "http": ports.http}
        async with asyncio.TaskGroup() as group:
            keeping = group.create_task(self._keeper.run())
            await self._server.start(wanted, host=self._settings.bind_address, tls=self._contexts)
            log.info("listening", **self._server.ports)
            tasks = [keeping, group.create_task(self._writer.run()), group.create_task(self._driver.run())]
            for watcher in self._watchers.values():
                tasks.append(group.create_task(watcher.run()))
                await asyncio.sleep(0)  # the first request of each takes half a millisecond until it is on its way
            tasks += [group.create_task(self._watchdog.run()), group.create_task(_keep_lean())]
            leading = group.create_task(self._lead())
            tasks.append(group.create_task(self._stop_when_outdated(client, version)))
            await self._stopping.wait()
            await self._stop(leading)
            for task in tasks:
                task.cancel()

    async def _stop_when_outdated(self, client: ApiClient, version: str) -> None:
        """Stop when the cluster serves another version than the one we read: whoever keeps us starts us anew with it.

        It may have been installed after we were started, or we were started while nobody could be asked.
        """
        while True:
            served = await _kueue_version(client)
            if served not in (None, version):
                log.warning("kueue_version_changed", read=version, served=served)
                self._stopping.set()
                return
            await asyncio.sleep(VERSION_POLL_S)

    async def _lead(self) -> None:
        """Run for leader once everything is known, and before each term see what the one before wrote.

        Our own writes of an earlier term end first: one that still is on its way could land behind our list.
        """
        await asyncio.gather(*(watcher.synced.wait() for watcher in self._watchers.values()))
        keep_what_is_held()
        log.info("synced", pods=self._watchers["pods"].held)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._leader.run())
            while True:
                await self._elected.wait()
                self._elected.clear()
                await self._writer.drain()
                await self._freshen()
                # Elected again meanwhile: somebody else may have led in between, unseen by these lists.
                if self._leader.is_leader() and not self._elected.is_set():
                    self._driver.lead(True)

    async def _freshen(self) -> None:
        """List anew what carries admissions, and the quota objects, so that a watch that lags costs no quota.

        Of the latter one that cannot be listed stops nobody. Nodes are left out: no decision about quota reads them.
        """
        await asyncio.gather(*(self._watchers[name].relist() for name in sorted(self._carriers)))
        others = [watcher for name, watcher in self._watchers.items() if name not in (*self._carriers, "nodes")]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FRESHEN_S_MAX):
                await asyncio.gather(*(watcher.relist() for watcher in others))

    def _office(self, leads: bool) -> None:
        if leads:
            self._clock.set_date()
            self._elected.set()
        else:
            self._driver.lead(False)
            self._writer.recall()

    async def _stop(self, leading: "asyncio.Task[None]") -> None:
        log.info("stopping")
        self._driver.lead(False)
        for _ in range(2):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(WRITES_DRAIN_S):
                    await self._writer.drain()
            self._writer.recall()  # what still waits, for a disruption budget say, is the next leader's
        leading.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await leading
        if self._writer.settled:
            await self._leader.release()
        await self._server.drain(seconds(self._settings.drain))
        await self._server.stop()
        log.info("stopped")

    def _outcome(self, effect: Effect, outcome: Outcome) -> None:
        if outcome.done:
            self._driver.done(effect)
        else:
            self._driver.refused(effect, f"{outcome.kind}: {outcome.cause}")

    # --- health ---

    def _unsynced(self) -> list[str]:
        return [name for name, watcher in self._watchers.items() if not watcher.synced.is_set()]

    def live(self) -> str:
        """Why the process should be restarted: never by itself, since a crash of any part ends it."""
        return ""

    def ready(self) -> str:
        """Why it should get no requests."""
        missing = self._unsynced()
        if missing:
            problems = [f"{name}: {self._watchers[name].problem or 'not listed yet'}" for name in missing]
            return "; ".join(problems)
        stale = [name for name, watcher in self._watchers.items() if watcher.age_s() > STALE_S]
        return f"no news of {', '.join(stale)} for {STALE_S:.0f} s" if stale else self._keeper.trouble()

    def dump(self) -> bytes:
        """The state as JSON, for people."""
        state = {
            "identity": self._identity,
            "leader": self._leader.holder,
            "leads": self._leader.is_leader(),
            "lease_problem": self._leader.problem,
            "open_writes": len(self._writer),
            "writes": msgspec.structs.asdict(self._writer.counters),
            "watches": {
                name: {"held": watcher.held, "age_s": round(watcher.age_s(), 1), "problem": watcher.problem}
                for name, watcher in self._watchers.items()
            },
        }
        return orjson.dumps(state, option=orjson.OPT_NON_STR_KEYS)


async def _kueue_version(client: ApiClient) -> str | None:
    """The version of Kueue's API to read, None while the API server cannot be asked."""
    try:
        return await resources.kueue_version(client)
    except ExtenderError:
        return None


def _report(resource: str, problem: str) -> None:
    if problem:
        log.warning("watch_problem", resource=resource, problem=problem)
    else:
        log.info("watch_recovered", resource=resource)


def _report_lease(problem: str) -> None:
    if problem:
        log.warning("lease_problem", problem=problem)
    else:
        log.info("lease_recovered")
