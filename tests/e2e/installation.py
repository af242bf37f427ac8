"""Installs the shipped manifests on a rig and runs the service as its own service account.

Exactly the files of ``manifests/`` are applied. What differs is what a rig has not: containers and cluster addresses.
The Deployment gets no replicas, since its pods would be simulated; the same command runs as processes of the machine,
with the service account's token. Webhooks and the extender are called on this machine's addresses.
"""

from __future__ import annotations

import asyncio
import base64
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import yaml

from tests.rig import NodePool, Process, Rig

ROOT = Path(__file__).parents[2]
MANIFESTS = ROOT / "manifests"
HOSPITAL = MANIFESTS / "examples" / "hospital"
NAMESPACE = "cohort-system"
SECRET = f"/api/v1/namespaces/{NAMESPACE}/secrets"
WEBHOOKS = "/apis/admissionregistration.k8s.io/v1"
QUEUES = "/apis/kueue.x-k8s.io/v1beta2/clusterqueues"
POOL_LABEL = "hospital.example.com/gpu-pool"
POOLS = (
    NodePool("a100-big", 10, {POOL_LABEL: "nvidia-a100"}, capacity={"nvidia.com/gpu": 8}),
    NodePool("a100-small", 5, {POOL_LABEL: "nvidia-a100"}, capacity={"nvidia.com/gpu": 4}),
    NodePool("high-end", 2, {POOL_LABEL: "a100-high-end"}, capacity={"nvidia.com/gpu": 5}),
    NodePool("mig", 4, {POOL_LABEL: "a100-mig-10"}, capacity={"nvidia.com/gpu": 5}),
)
"""The hospital's nodes: 100 GPUs of the cohort on nodes of 8 and 4, and those of the article's own queue."""


@dataclass
class Replica:
    """One process of the service and where it listens."""

    name: str
    extender: int
    webhook: int
    http: int
    process: Process | None = None

    @property
    def url(self) -> str:
        """Health, metrics and the dump."""
        return f"http://127.0.0.1:{self.http}"


class Installation:
    """The product on *rig*: its replicas, and the scheduler that asks the first of them."""

    def __init__(self, rig: Rig, *, overlay: str = "default", settings: dict[str, Any] | None = None) -> None:
        self.rig = rig
        self.replicas: list[Replica] = []
        self._overlay = overlay
        self._settings = settings or {}

    @property
    def service(self) -> Process:
        """The first replica's process."""
        process = self.replicas[0].process
        assert process is not None
        return process

    @property
    def webhook_port(self) -> int:
        """Where the API server calls the webhooks."""
        return self.replicas[0].webhook

    @property
    def extender_port(self) -> int:
        """Where the scheduler calls the extender."""
        return self.replicas[0].extender

    async def credentials(self, replica: Replica) -> Path:
        """The kubeconfig of *replica*: the service account, with its token in a file."""
        return await self.rig.service_account_kubeconfig(NAMESPACE, "cohort-extender")

    async def install(self, *, replicas: int = 1) -> None:
        """Apply the manifests, start the service, and a scheduler that asks it."""
        self.replicas = [
            Replica(f"cohort-extender-{index}", *(self.rig.free_port() for _ in range(3))) for index in range(replicas)
        ]
        await self._apply()
        for replica in self.replicas:
            await self._start(replica)
        await self._trusted()
        await self.rig.start_scheduler(await self._scheduler_config())

    async def _apply(self) -> None:
        directory = self._write_overlay()
        built = await self.rig.kubectl("kustomize", "--load-restrictor=LoadRestrictionsNone", directory)
        await self.rig.kubectl("apply", "--server-side", "-f", "-", input=built)
        await self.rig.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=30s")

    def _write_overlay(self) -> Path:
        directory = self.rig.directory / "overlay"
        directory.mkdir()
        address = f"https://127.0.0.1:{self.webhook_port}"
        kustomization = {
            "apiVersion": "kustomize.config.k8s.io/v1beta1",
            "kind": "Kustomization",
            "resources": [os.path.relpath(MANIFESTS / self._overlay, directory.resolve())],
            "patches": [_replicas_patch(), *(_webhook_patch(kind, address) for kind in ("Mutating", "Validating"))],
        }
        (directory / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
        return directory

    async def _start(self, replica: Replica) -> None:
        settings = yaml.safe_load((MANIFESTS / "config" / "config.yaml").read_text())
        settings["ports"] = {"extender": replica.extender, "webhook": replica.webhook, "http": replica.http}
        settings["bindAddress"] = "127.0.0.1"
        settings["logFormat"] = "console"
        settings["drain"] = "1s"
        settings["tls"]["names"] = ["127.0.0.1"]
        settings.update(self._settings)
        config = self.rig.directory / f"{replica.name}.yaml"
        config.write_text(yaml.safe_dump(settings))
        kubeconfig = await self.credentials(replica)
        replica.process = await self.rig.start_process(
            replica.name,
            [sys.executable, "-m", "extender", "serve", "--config", config],
            env={"KUBECONFIG": str(kubeconfig), "POD_NAME": replica.name, "POD_NAMESPACE": NAMESPACE},
            ready_url=f"{replica.url}/readyz",
        )

    async def _trusted(self) -> None:
        """Wait until the API server is told whom to trust."""
        for kind in ("mutating", "validating"):
            await self.rig.wait_for(
                f"{WEBHOOKS}/{kind}webhookconfigurations",
                lambda found: all(
                    hook["clientConfig"].get("caBundle")
                    for configuration in found
                    if configuration["metadata"]["name"] == "cohort-extender"
                    for hook in configuration["webhooks"]
                ),
                what=f"the CA in the {kind} webhooks",
            )

    async def _scheduler_config(self) -> str:
        secrets = await self.rig.api.list(SECRET)
        (secret,) = [found for found in secrets if found["metadata"]["name"] == "cohort-extender-certs"]
        authority = self.rig.directory / "extender-ca.crt"
        authority.write_bytes(base64.b64decode(secret["data"]["ca.crt"]))
        config = yaml.safe_load((MANIFESTS / "scheduler" / "scheduler-config.yaml").read_text())
        for extender in config["extenders"]:
            extender["urlPrefix"] = f"https://127.0.0.1:{self.extender_port}/scheduler"
            extender["tlsConfig"]["caFile"] = str(authority)
        return yaml.safe_dump(config)

    async def apply(self, path: Path, *, namespace: str = "") -> None:
        """``kubectl apply`` a file or folder."""
        scope = ("-n", namespace) if namespace else ()
        await self.rig.kubectl("apply", *scope, "-f", path)

    async def hospital(self) -> None:
        """The cohort, queues and priorities of the story."""
        await self.apply(HOSPITAL)

    async def set_stop_policy(self, cluster_queue: str, policy: str) -> None:
        """Hold or resume a ClusterQueue."""
        await self.rig.api.patch(f"{QUEUES}/{cluster_queue}", {"spec": {"stopPolicy": policy}})


def _replicas_patch() -> dict[str, Any]:
    patch = [{"op": "replace", "path": "/spec/replicas", "value": 0}]
    return {"target": {"kind": "Deployment", "name": "cohort-extender"}, "patch": orjson.dumps(patch).decode()}


def _webhook_patch(kind: str, address: str) -> dict[str, Any]:
    file = yaml.safe_load_all((MANIFESTS / "base" / "webhooks.yaml").read_text())
    (configuration,) = [found for found in file if found["kind"] == f"{kind}WebhookConfiguration"]
    patch: list[dict[str, Any]] = []
    for index, hook in enumerate(configuration["webhooks"]):
        service = hook["clientConfig"]["service"]
        patch += [
            {"op": "remove", "path": f"/webhooks/{index}/clientConfig/service"},
            {"op": "add", "path": f"/webhooks/{index}/clientConfig/url", "value": address + service["path"]},
        ]
    return {"target": {"kind": f"{kind}WebhookConfiguration"}, "patch": orjson.dumps(patch).decode()}


@asynccontextmanager
async def installed(
    *,
    replicas: int = 1,
    pools: tuple[NodePool, ...] = POOLS,
    settings: dict[str, Any] | None = None,
    rig_options: dict[str, Any] | None = None,
) -> AsyncIterator[Installation]:
    """A rig with the hospital's nodes, the product installed and the hospital's objects applied.

    *settings* are put over the shipped configuration, *rig_options* go to the rig.
    """
    async with Rig(nodes=pools, scheduler=False, **(rig_options or {})) as rig:
        installation = Installation(rig, settings=settings)
        await installation.install(replicas=replicas)
        await installation.hospital()
        yield installation


async def settle(seconds: float) -> None:
    """Let time pass in which nothing may happen: only to show that nothing does."""
    await asyncio.sleep(seconds)
