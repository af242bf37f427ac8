"""The command line of each component: what is on, what is off, and why.

Everything a cluster's security rests on is on: TLS, RBAC, service-account tokens, the default admission
plugins, priority and fairness. What differs from a production cluster is durability (etcd does not sync to
disk), leader election of components that have no second instance, and client rate limits, which are raised
so that the rig is not what a test measures.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.rig.pki import Pair
from tests.rig.ports import LOOPBACK

SERVICE_RANGE = "10.0.0.0/16"
POD_RANGE = "10.128.0.0/9"
ISSUER = "https://kubernetes.default.svc.cluster.local"
CLIENT_QPS = 1000
CLIENT_BURST = 2000
ETCD_BYTES_MAX = 4 * 1024**3
HEARTBEATS_MISSED_MAX = 5


@dataclass(frozen=True)
class Trust:
    """The certificates and keys that the components share."""

    ca: Path
    serving: Pair
    tokens: Pair


def etcd(*, port: int, data: Path) -> list[str]:
    """One member, plain HTTP on the loopback address, nothing synced to disk."""
    client = f"http://{LOOPBACK}:{port}"
    return [
        f"--data-dir={data}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls=http://{LOOPBACK}:0",
        f"--quota-backend-bytes={ETCD_BYTES_MAX}",
        "--unsafe-no-fsync",
        "--log-level=warn",
    ]


def apiserver(
    *, port: int, etcd_port: int, trust: Trust, feature_gates: Mapping[str, bool], apis: Sequence[str] = ()
) -> list[str]:
    """RBAC and TLS on, default admission; no lease of its own endpoints, as loopback is none.

    *apis* are group versions to serve that are off by default, such as ``scheduling.k8s.io/v1alpha2``.
    """
    return [
        f"--etcd-servers=http://{LOOPBACK}:{etcd_port}",
        f"--bind-address={LOOPBACK}",
        f"--secure-port={port}",
        *_serving(trust.serving),
        f"--client-ca-file={trust.ca}",
        "--authorization-mode=Node,RBAC",
        f"--service-account-issuer={ISSUER}",
        f"--service-account-key-file={trust.tokens.cert}",
        f"--service-account-signing-key-file={trust.tokens.key}",
        f"--service-cluster-ip-range={SERVICE_RANGE}",
        "--endpoint-reconciler-type=none",
        "--allow-privileged=true",
        "--profiling=false",
        *_gates(feature_gates),
        *([f"--runtime-config={','.join(f'{api}=true' for api in apis)}"] if apis else []),
    ]


def controller_manager(
    *, port: int, kubeconfig: Path, trust: Trust, heartbeat_s: int, feature_gates: Mapping[str, bool]
) -> list[str]:
    """Each controller under its own service account; a node is lost after five missed reports."""
    return [
        f"--bind-address={LOOPBACK}",
        f"--secure-port={port}",
        *_serving(trust.serving),
        *_delegated(kubeconfig),
        "--leader-elect=false",
        "--use-service-account-credentials=true",
        f"--service-account-private-key-file={trust.tokens.key}",
        f"--root-ca-file={trust.ca}",
        f"--node-monitor-grace-period={heartbeat_s * HEARTBEATS_MISSED_MAX}s",
        f"--kube-api-qps={CLIENT_QPS}",
        f"--kube-api-burst={CLIENT_BURST}",
        "--profiling=false",
        *_gates(feature_gates),
    ]


def scheduler(
    *, port: int, kubeconfig: Path, config: Path, trust: Trust, feature_gates: Mapping[str, bool]
) -> list[str]:
    """As its configuration file says."""
    return [
        f"--config={config}",
        f"--bind-address={LOOPBACK}",
        f"--secure-port={port}",
        *_serving(trust.serving),
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        *_gates(feature_gates),
    ]


def kwok(*, port: int, kubeconfig: Path, config: Path) -> list[str]:
    """The kubelet of every node that nodes.py made, and of no other.

    Without node leases: KWOK drops what happens to a pod while it does not (yet, or as far as it knows) hold the
    lease of the pod's node, so pods bound just then would start seconds late or never. Nodes report through
    their status instead (stages/node.yaml).
    """
    return [
        f"--kubeconfig={kubeconfig}",
        f"--config={config}",
        f"--manage-nodes-with-label-selector={_SIMULATED}=true",
        "--node-lease-duration-seconds=0",
        f"--server-address={LOOPBACK}:{port}",
        f"--cidr={POD_RANGE}",
    ]


def scheduler_config(given: str | Mapping[str, Any] | None, *, kubeconfig: Path) -> str:
    """*given* (text or mapping) completed with the connection; no leader election unless it asks for it."""
    content: Any = yaml.safe_load(given) if isinstance(given, str) else dict(given or {})
    content.setdefault("apiVersion", "kubescheduler.config.k8s.io/v1")
    content.setdefault("kind", "KubeSchedulerConfiguration")
    connection = {"qps": CLIENT_QPS, "burst": CLIENT_BURST, **content.get("clientConnection", {})}
    content["clientConnection"] = connection | {"kubeconfig": str(kubeconfig)}
    content.setdefault("leaderElection", {"leaderElect": False})
    return yaml.safe_dump(content, sort_keys=False)


def kwok_config(stages: Path) -> str:
    """KWOK's options, with every stage file of *stages* behind them."""
    options = {
        "apiVersion": "config.kwok.x-k8s.io/v1alpha1",
        "kind": "KwokConfiguration",
        "options": {
            # Writes in flight, each mostly waiting for the API server: with few, the kubelets of a thousand nodes
            # would fall behind a scheduler that binds as fast as it can.
            "podPlayStageParallelism": 128,
            "nodePlayStageParallelism": 8,
            "podsOnNodeSyncParallelism": 8,
        },
    }
    parts = [yaml.safe_dump(options), *(path.read_text() for path in sorted(stages.glob("*.yaml")))]
    return "\n---\n".join(parts)


_SIMULATED = "rig.cohort-extender.io/simulated"


def _serving(pair: Pair) -> list[str]:
    return [f"--tls-cert-file={pair.cert}", f"--tls-private-key-file={pair.key}"]


def _delegated(kubeconfig: Path) -> list[str]:
    return [
        f"--kubeconfig={kubeconfig}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
    ]


def _gates(feature_gates: Mapping[str, bool]) -> list[str]:
    listed = ",".join(f"{name}={str(on).lower()}" for name, on in sorted(feature_gates.items()))
    return [f"--feature-gates={listed}"] if listed else []
