"""A whole Kubernetes control plane for one test: real parts, simulated kubelets, its own directory and ports.

The order of the start is the order of need: etcd, then the API server, then everything that talks to it at
once. It is ready when each component says so, the default service account exists and every node may be
scheduled on. Nothing is left behind: leaving the block kills every process, and the kernel does so when the
Python process dies first (guard.py).
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import aiohttp

from tests.rig import components, kubeconfig
from tests.rig.api import Api, Object
from tests.rig.build import binaries
from tests.rig.directory import RigDirectory
from tests.rig.kubectl import kubectl
from tests.rig.nodes import NODES, SIMULATED, NodePool, create_nodes, is_schedulable
from tests.rig.pki import Authority, Pair
from tests.rig.ports import LOOPBACK, free_port
from tests.rig.process import Process, answers

T = TypeVar("T")

STAGES = Path(__file__).with_name("stages")
HEARTBEAT_S = 60
HEARTBEATS_PER_S_MAX = 10  # many nodes report less often, so that they cost no more
READY_S_MAX = 60.0
KUBECTL_S_MAX = 60.0
TOKEN_S = 3600
DRAIN_S_MAX = 5.0

USERS: Mapping[str, Sequence[str]] = {
    "admin": ("system:masters",),
    "system:kube-controller-manager": (),
    "system:kube-scheduler": (),
    "kwok": ("system:masters",),  # it plays the kubelets; RBAC is there for everyone else
}


class Rig:
    """`async with Rig(nodes=[NodePool(...)]) as rig:` and a cluster is there.

    `scheduler` may be a KubeSchedulerConfiguration (text or mapping), or False to start none yet:
    see `start_scheduler`. *apis*: group versions to serve beside the default ones. A node that has not reported
    for five times *heartbeat_s* counts as lost.
    """

    def __init__(
        self,
        *,
        nodes: Sequence[NodePool] = (),
        scheduler: str | Mapping[str, Any] | bool = True,
        feature_gates: Mapping[str, bool] | None = None,
        apis: Sequence[str] = (),
        heartbeat_s: int | None = None,
        kubernetes: str | None = None,
    ) -> None:
        self.pools = tuple(nodes)
        self.processes: dict[str, Process] = {}
        self._scheduler = scheduler
        self._gates = dict(feature_gates or {})
        self._apis = tuple(apis)
        count = sum(pool.count for pool in self.pools)
        self._heartbeat_s = heartbeat_s or max(HEARTBEAT_S, count // HEARTBEATS_PER_S_MAX)
        self._kubernetes = kubernetes

    async def __aenter__(self) -> Self:
        self._binaries = binaries(self._kubernetes)
        self._directory = RigDirectory()
        self.directory = self._directory.path
        try:
            await self._start()
        except BaseException as error:
            if isinstance(error, Exception):  # to be stopped is no fault of anybody's
                self._report()
            await self._close()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(error, Exception):
            self._report()
        await self._close()

    # What the outside needs to know.

    @property
    def server(self) -> str:
        """The address of the API server."""
        return f"https://{LOOPBACK}:{self._port}"

    @property
    def ca(self) -> Authority:
        """The authority behind every certificate of the rig; may issue more."""
        return self._ca

    @staticmethod
    def free_port() -> int:
        """A free port on 127.0.0.1."""
        return free_port()

    def binary(self, component: str) -> Path:
        """The binary of a component, kubectl included."""
        return self._binaries[component]

    def kubeconfig(self, user: str = "admin") -> Path:
        """The kubeconfig of one of the users in USERS."""
        return self.directory / f"{user.replace(':', '-')}.kubeconfig"

    def component(self, name: str) -> Process:
        """A component, or a process begun with `start_process`: to kill, pause, restart, read its log."""
        return self.processes[name]

    # Acts.

    async def wait_for(
        self,
        path: str,
        predicate: Callable[[list[Object]], T],
        *,
        timeout_s: float = 30.0,
        what: str = "",
        **params: str,
    ) -> T:
        """Wait, on a watch, until *predicate* of the objects at *path* is true (see Api.wait_for)."""
        return await self.api.wait_for(path, predicate, timeout_s=timeout_s, what=what, **params)

    async def kubectl(
        self,
        *arguments: str | Path,
        input: str | bytes | None = None,
        config: Path | None = None,
        timeout_s: float = KUBECTL_S_MAX,
    ) -> str:
        """Run kubectl as admin, or with another kubeconfig; what it printed.

        Raises: KubectlError, TimeoutError.
        """
        return await kubectl(
            self.binary("kubectl"),
            arguments,
            env=self._env() | {"KUBECONFIG": str(config or self.kubeconfig())},
            given=input,
            timeout_s=timeout_s,
        )

    async def service_account_kubeconfig(self, namespace: str, name: str) -> Path:
        """A kubeconfig that acts as a service account, with a token bound to it and kept in a file.

        Call it again to rotate the token: the same path, the new token in the same file.
        """
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"}
        answer = await self.api.create(path, request | {"spec": {"expirationSeconds": TOKEN_S}})
        stem = f"{namespace}-{name}"
        token, fresh = self.directory / f"{stem}.token", self.directory / f"{stem}.token.new"
        fresh.touch(mode=0o600)
        fresh.write_text(answer["status"]["token"])
        fresh.replace(token)  # readers see the old or the new token, never half of one
        return kubeconfig.with_token_file(
            self.directory / f"{stem}.kubeconfig",
            server=self.server,
            ca=self._ca.cert,
            user=f"system:serviceaccount:{namespace}:{name}",
            token=token,
        )

    def api_as(self, token: str) -> Api:
        """A client that shows a bearer token instead of the admin's certificate; close it after use."""
        return Api(self.server, tls=ssl.create_default_context(cafile=self._ca.cert), token=token)

    async def add_nodes(self, *pools: NodePool, timeout_s: float = READY_S_MAX) -> list[str]:
        """Create nodes and wait until pods can be scheduled on them; their names."""
        names = set(await create_nodes(self.api, pools, heartbeat_s=self._heartbeat_s))
        await self.wait_for(
            NODES,
            lambda nodes: names <= {n["metadata"]["name"] for n in nodes if is_schedulable(n)},
            timeout_s=timeout_s,
            what="all nodes ready",
            labelSelector=SIMULATED,
        )
        return sorted(names)

    async def start_scheduler(
        self,
        config: str | Mapping[str, Any] | None = None,
        *,
        name: str = "kube-scheduler",
        user_config: Path | None = None,
    ) -> Process:
        """Start kube-scheduler, or start it again with another configuration.

        A second one runs beside it under another *name*, with a schedulerName of its own in its profiles;
        *user_config* is a kubeconfig to act under (default: system:kube-scheduler).
        """
        if name in self.processes:
            await self.processes[name].kill()
        credentials = user_config or self.kubeconfig("system:kube-scheduler")
        file = self.directory / f"{name}.yaml"
        file.write_text(components.scheduler_config(config, kubeconfig=credentials))
        port = free_port()
        arguments = components.scheduler(
            port=port,
            kubeconfig=credentials,
            config=file,
            trust=self._trust,
            feature_gates=self._gates,
        )
        url = f"https://{LOOPBACK}:{port}/readyz"
        return await self._run(name, "kube-scheduler", arguments, url)

    async def start_process(
        self,
        name: str,
        argv: Sequence[str | Path],
        *,
        env: Mapping[str, str] | None = None,
        ready_url: str | None = None,
        ready_s_max: float = 30.0,
        wait: bool = True,
    ) -> Process:
        """Run a program of ours under the rig's supervision.

        It sees our environment and *env*. Ready is when *ready_url* answers 200 (no certificate is checked).
        """
        process = Process(
            name=name,
            argv=[str(argument) for argument in argv],
            log=self.directory / f"{name}.log",
            env={**os.environ, **(env or {})},
            ready=answers(ready_url) if ready_url else None,
            ready_s_max=ready_s_max,
        )
        self.processes[name] = process
        await process.start(wait=wait)
        return process

    async def metrics(self, component: str) -> str:
        """The text of a component's /metrics, asked as admin."""
        async with self._session() as session, session.get(f"{self.url(component)}/metrics") as answer:
            return await answer.text()

    def url(self, component: str) -> str:
        """The address a component serves on."""
        return self._urls[component]

    # The start and the end.

    async def _start(self) -> None:
        self._urls: dict[str, str] = {}
        self._ca = Authority(self.directory / "pki")
        self._trust = components.Trust(
            ca=self._ca.cert, serving=self._ca.serving(), tokens=self._ca.signing_key("tokens")
        )
        self._port, etcd_port = free_port(), free_port()
        pairs = {user: self._ca.client(user, groups=groups) for user, groups in USERS.items()}
        for user, pair in pairs.items():
            kubeconfig.with_certificate(
                self.kubeconfig(user), server=self.server, ca=self._ca.cert, user=user, pair=pair
            )
        self._tls = _client_tls(self._ca.cert, pairs["admin"])
        self.api = Api(self.server, tls=self._tls)

        arguments = components.etcd(port=etcd_port, data=self.directory / "etcd")
        await self._run("etcd", "etcd", arguments, f"http://{LOOPBACK}:{etcd_port}/health")
        arguments = components.apiserver(
            port=self._port, etcd_port=etcd_port, trust=self._trust, feature_gates=self._gates, apis=self._apis
        )
        await self._run("kube-apiserver", "kube-apiserver", arguments, f"{self.server}/readyz")
        async with asyncio.TaskGroup() as starting:
            starting.create_task(self._start_controllers())
            starting.create_task(self._start_kwok())
            starting.create_task(self._default_service_account())
            if self._scheduler is not False:
                given = None if self._scheduler is True else self._scheduler
                starting.create_task(self.start_scheduler(given))
            if self.pools:
                starting.create_task(self.add_nodes(*self.pools))

    async def _start_controllers(self) -> None:
        port = free_port()
        arguments = components.controller_manager(
            port=port,
            kubeconfig=self.kubeconfig("system:kube-controller-manager"),
            trust=self._trust,
            heartbeat_s=self._heartbeat_s,
            feature_gates=self._gates,
        )
        name = "kube-controller-manager"
        await self._run(name, name, arguments, f"https://{LOOPBACK}:{port}/healthz")

    async def _start_kwok(self) -> None:
        port = free_port()
        file = self.directory / "kwok.yaml"
        file.write_text(components.kwok_config(STAGES))
        arguments = components.kwok(port=port, kubeconfig=self.kubeconfig("kwok"), config=file)
        await self._run("kwok", "kwok", arguments, f"http://{LOOPBACK}:{port}/healthz")

    async def _default_service_account(self) -> None:
        path = "/api/v1/namespaces/default/serviceaccounts"
        await self.wait_for(path, bool, timeout_s=READY_S_MAX, what="the default service account")

    async def _run(self, name: str, component: str, arguments: list[str], ready: str) -> Process:
        process = Process(
            name=name,
            argv=[str(self.binary(component)), *arguments],
            log=self.directory / f"{name}.log",
            env=self._env(),
            cwd=self.directory,
            ready=answers(ready),
            ready_s_max=READY_S_MAX,
        )
        self.processes[name] = process
        self._urls[name] = ready.rsplit("/", 1)[0]
        await process.start()
        return process

    def _env(self) -> dict[str, str]:
        """Only what a component needs: nothing of the caller's cluster or proxy settings may leak in."""
        return {"HOME": str(self.directory), "PATH": os.environ.get("PATH", ""), "TZ": "UTC"}

    def _session(self) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=self._tls),
            timeout=aiohttp.ClientTimeout(total=KUBECTL_S_MAX),
        )

    def _report(self) -> None:
        """Show the end of every log, for whoever reads why a test failed."""
        for process in self.processes.values():
            print(process.tail())

    async def _close(self) -> None:
        """End our own programs gently, then kill the rest, clients before servers: its data is not kept."""
        own = [process for name, process in self.processes.items() if name not in self._urls]
        await asyncio.gather(*(process.terminate(DRAIN_S_MAX) for process in own))
        rest = [process for name, process in reversed(self.processes.items()) if name in self._urls]
        for process in rest:
            process.kill_now()
        await asyncio.gather(*(process.kill() for process in rest))
        if hasattr(self, "api"):
            await self.api.close()
        keep = os.environ.get("RIG_KEEP") == "1"
        if keep:
            print(f"rig: kept {self.directory}")
        self._directory.close(keep=keep)


def _client_tls(ca: Path, pair: Pair) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=ca)
    context.load_cert_chain(pair.cert, pair.key)
    return context
