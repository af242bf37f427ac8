"""Two replicas, each with its own way to the API server, in a small cluster with two queues that share eight GPUs."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import yaml

from tests.e2e.installation import NAMESPACE, Installation, Replica
from tests.faults.proxy import Front, Proxy, until
from tests.rig import NodePool, Process, Rig

Object = dict[str, Any]

LEFT, RIGHT = "left", "right"
GPU = "nvidia.com/gpu"
POOL = "faults.example.com/pool"
NOMINAL, TOTAL = 4, 8
POOLS = (
    NodePool("good", 2, {POOL: "good"}, capacity={GPU: 4}),
    NodePool("other", 1, {POOL: "other"}, capacity={GPU: 8}),
)
"""The quota's GPUs are on the good nodes. There is room on the other one too, but no quota for it."""
ACCOUNT = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/cohort-extender"
QUEUES = "/apis/kueue.x-k8s.io/v1beta2/clusterqueues"
PROBE_S = 0.5
TAKE_OVER_S_MAX = 60.0


def pods_path(namespace: str) -> str:
    """Where the pods of *namespace* are."""
    return f"/api/v1/namespaces/{namespace}/pods"


def objects() -> list[Object]:
    """Namespaces, one flavor, and two queues that own half each and lend and take back all of it."""
    api = "kueue.x-k8s.io/v1beta2"
    found: list[Object] = [
        {
            "apiVersion": api,
            "kind": "ResourceFlavor",
            "metadata": {"name": "good"},
            "spec": {"nodeLabels": {POOL: "good"}},
        }
    ]
    for name in (LEFT, RIGHT):
        flavor = {"name": "good", "resources": [{"name": GPU, "nominalQuota": NOMINAL}]}
        spec = {
            "cohortName": "both",
            "namespaceSelector": {},
            "queueingStrategy": "BestEffortFIFO",
            "preemption": {"reclaimWithinCohort": "Any"},
            "resourceGroups": [{"coveredResources": [GPU], "flavors": [flavor]}],
        }
        found += [
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}},
            {"apiVersion": api, "kind": "ClusterQueue", "metadata": {"name": name}, "spec": spec},
            {
                "apiVersion": api,
                "kind": "LocalQueue",
                "metadata": {"name": "queue", "namespace": name},
                "spec": {"clusterQueue": name},
            },
        ]
    return found


def pod(name: str, **annotations: str) -> Object:
    """A pod that wants one GPU and runs until it is deleted."""
    container = {"name": "main", "image": "busybox", "resources": {"limits": {GPU: "1"}}}
    named = {"kueue.x-k8s.io/queue-name": "queue", **annotations}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": named},
        "spec": {"restartPolicy": "Never", "containers": [container]},
    }


class Lab(Installation):
    """The installation with a proxy before each replica's API server, and a front before their own listeners."""

    def __init__(self, rig: Rig) -> None:
        super().__init__(rig)
        self.proxies: dict[str, Proxy] = {}
        self.tokens: dict[str, str] = {}
        self.scheduler_restarts = 0
        self._bound_to: dict[str, Object] = {}
        self._ready: dict[str, bool] = {}
        self._fronts = {
            "extender": Front(lambda: self._targets("extender")),
            "webhook": Front(lambda: self._targets("webhook")),
        }
        self._session: aiohttp.ClientSession | None = None

    @property
    def webhook_port(self) -> int:
        """The front's."""
        return self._fronts["webhook"].port

    @property
    def extender_port(self) -> int:
        """The front's."""
        return self._fronts["extender"].port

    async def open(self) -> None:
        """Start fronts and install everything."""
        self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=2))
        for front in self._fronts.values():
            await front.start(self.rig.free_port())
        self._probing = asyncio.create_task(self._probe_for_ever())
        await self.install(replicas=2)
        text = yaml.safe_dump_all(objects())
        await self.rig.kubectl("apply", "--server-side", "-f", "-", input=text)

    async def close(self) -> None:
        """Stop what is ours."""
        self._probing.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._probing
        for front in self._fronts.values():
            await front.close()
        for replica in self.replicas:
            if replica.process is not None:
                await replica.process.kill()
        for proxy in self.proxies.values():
            await proxy.close()
        if self._session is not None:
            await self._session.close()

    async def credentials(self, replica: Replica) -> Path:
        """A kubeconfig with the proxy's address, and a token of its own that is bound to a pod, as in a cluster."""
        proxy = Proxy(
            self.rig.server,
            trust=ssl.create_default_context(cafile=self.rig.ca.cert),
            serving=_serving(self.rig),
            port=self.rig.free_port(),
        )
        await proxy.start()
        self.proxies[replica.name] = proxy
        made = await self.rig.api.create(pods_path(NAMESPACE), _pod_of(replica))
        await self.rotate(replica, {"apiVersion": "v1", "kind": "Pod", **_named(made)})
        config = yaml.safe_load((await super().credentials(replica)).read_text())
        config["clusters"][0]["cluster"]["server"] = proxy.url
        config["users"][0]["user"] = {"tokenFile": str(self._token_file(replica))}
        file = self.rig.directory / f"{replica.name}.kubeconfig"
        file.touch(mode=0o600)
        file.write_text(yaml.safe_dump(config))
        return file

    async def rotate(self, replica: Replica, bound_to: Object | None = None) -> str:
        """Put a new token into its file, bound to an object or to what the last one was bound to."""
        if bound_to is not None:
            self._bound_to[replica.name] = bound_to
        spec = {"boundObjectRef": self._bound_to[replica.name]}
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        answer = await self.rig.api.create(f"{ACCOUNT}/token", request)
        token = self.tokens[replica.name] = str(answer["status"]["token"])
        fresh = self._token_file(replica).with_suffix(".new")
        fresh.touch(mode=0o600)
        fresh.write_text(token)
        fresh.replace(self._token_file(replica))
        return token

    def _token_file(self, replica: Replica) -> Path:
        return self.rig.directory / f"{replica.name}.token"

    # Replicas.

    def process(self, replica: Replica) -> Process:
        """Its process."""
        assert replica.process is not None
        return replica.process

    def proxy(self, replica: Replica) -> Proxy:
        """Its way to the API server."""
        return self.proxies[replica.name]

    def other(self, replica: Replica) -> Replica:
        """The other one."""
        (found,) = [one for one in self.replicas if one is not replica]
        return found

    async def state(self, replica: Replica) -> Object:
        """What it says of itself; empty when it does not answer."""
        status, text = await self.probe(replica, "/debug/dump")
        found: Object = orjson.loads(text) if status == 200 else {}
        return found

    async def leads(self, replica: Replica) -> bool:
        """Whether it may write."""
        return bool((await self.state(replica)).get("leads"))

    async def leader(self, *, among: list[Replica] | None = None, timeout_s: float = TAKE_OVER_S_MAX) -> Replica:
        """Wait until one of *among* (default: all) leads."""
        found: list[Replica] = []

        async def one_leads() -> bool:
            found.extend([replica for replica in among or self.replicas if await self.leads(replica)])
            return bool(found)

        await until(one_leads, "a leader", timeout_s=timeout_s)
        return found[0]

    async def is_ready(self, replica: Replica) -> bool:
        """Whether it is ready for requests."""
        status, _ = await self.probe(replica, "/readyz")
        return status == 200

    async def ask(self, url: str, body: Object) -> tuple[int, Object]:
        """POST to a listener of a replica, as the scheduler or the API server would; status and answer."""
        assert self._session is not None
        async with self._session.post(url, json=body, ssl=False) as answer:
            return answer.status, orjson.loads(await answer.read())

    async def probe(self, replica: Replica, path: str) -> tuple[int, str]:
        """GET from a replica's plain port; 0 while nothing listens there."""
        with contextlib.suppress(aiohttp.ClientError, TimeoutError):
            assert self._session is not None
            async with self._session.get(replica.url + path) as answer:
                return answer.status, await answer.text()
        return 0, ""

    # What a Service does.

    def _targets(self, port: str) -> list[int]:
        return [getattr(replica, port) for replica in self.replicas if self._ready.get(replica.name)]

    async def _probe_for_ever(self) -> None:
        while True:
            for replica in self.replicas:
                self._ready[replica.name] = await self.is_ready(replica)
            for front in self._fronts.values():
                front.sweep()
            await self._keep_scheduler()
            await asyncio.sleep(PROBE_S)

    async def _keep_scheduler(self) -> None:
        """Start kube-scheduler again when it has ended, as its kubelet does.

        It ends itself when a binding whose answer was lost turns out to have been carried out on another node.
        """
        scheduler = self.rig.processes.get("kube-scheduler")
        if scheduler is not None and scheduler.returncode is not None:
            self.scheduler_restarts += 1
            await scheduler.start(wait=False)

    # Between two tests.

    async def whole(self) -> None:
        """Everything works: network, control plane, both replicas, and one of them leads."""
        for proxy in self.proxies.values():
            proxy.heal()
        for name in ("etcd", "kube-apiserver"):
            component = self.rig.component(name)
            component.resume()
            if not component.running:
                await component.start(wait=False)
        for name in ("etcd", "kube-apiserver"):
            await self.rig.component(name).wait_ready()
        for replica in self.replicas:
            process = self.process(replica)
            process.resume()
            if not process.running:
                await process.start()
            await process.wait_ready()
        await self.leader()

    async def empty(self) -> None:
        """No pods, and every queue open."""
        for namespace in (LEFT, RIGHT):
            jobs = f"/apis/batch/v1/namespaces/{namespace}/jobs"
            await self.rig.api.delete(jobs, propagationPolicy="Background")
            await self.rig.wait_for(jobs, lambda found: not found, what="no Jobs")
            await self.rig.api.delete(pods_path(namespace), grace_s=0)
            await self.set_stop_policy(namespace, "None")
            await self.pods_are(namespace, lambda pods: not pods, "no pods")

    # Pods.

    async def pods(self, namespace: str) -> list[Object]:
        """All pods of *namespace*."""
        return await self.rig.api.list(pods_path(namespace))

    async def submit(self, namespace: str, *pods: Object) -> None:
        """Create pods, in order."""
        for each in pods:
            await self.rig.api.create(pods_path(namespace), each)

    async def pods_are(
        self, namespace: str, wanted: Callable[[list[Object]], bool], what: str, *, timeout_s: float = 120.0
    ) -> None:
        """Wait until the pods of *namespace* are as *wanted* says. Raises: TimeoutError, with all there is to know."""
        try:
            await self.rig.wait_for(pods_path(namespace), wanted, what=what, timeout_s=timeout_s)
        except TimeoutError as error:
            found = [*await self.pods(LEFT), *await self.pods(RIGHT)]
            raise TimeoutError("\n".join([str(error), *map(_told, found)])) from error


def _named(made: Object) -> Object:
    """What binds a token to *made*."""
    return {key: made["metadata"][key] for key in ("name", "uid")}


def _pod_of(replica: Replica) -> Object:
    """The pod that *replica* would be in a cluster."""
    rights = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    spec = {
        "serviceAccountName": "cohort-extender",
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [{"name": "main", "image": "cohort-extender:0.1.0", "securityContext": rights}],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": replica.name}, "spec": spec}


def _told(pod: Object) -> str:
    """One line about a pod, for a person."""
    metadata, spec = pod["metadata"], pod["spec"]
    gates = [gate["name"] for gate in spec.get("schedulingGates", ())]
    conditions = [
        f"{one['type']}={one['status']} {one.get('reason', '')} {one.get('message', '')}".strip()
        for one in pod["status"].get("conditions", ())
    ]
    marks = [mark for mark in ("deletionTimestamp",) if mark in metadata]
    where = spec.get("nodeName", "no node")
    return (
        f"{metadata['namespace']}/{metadata['name']} {pod['status'].get('phase')} {where} {gates} {marks} {conditions}"
    )


def _serving(rig: Rig) -> ssl.SSLContext:
    pair = rig.ca.serving("proxy")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(pair.cert, pair.key)
    return context


@asynccontextmanager
async def lab() -> AsyncIterator[Lab]:
    """A rig with two replicas, installed and ready."""
    async with Rig(nodes=POOLS, scheduler=False) as rig:
        made = Lab(rig)
        try:
            await made.open()
            yield made
        finally:
            await made.close()


__all__ = ["GPU", "LEFT", "NAMESPACE", "NOMINAL", "POOL", "RIGHT", "TOTAL", "Lab", "Object", "lab", "pod", "pods_path"]
