"""What lives in the cluster beside us: administrators' objects, owners of pods, the scheduler and the kubelets."""

from random import Random
from typing import NamedTuple

import msgspec

from extender.model.errors import NotYetSeen
from extender.model.names import (
    CPU,
    ClusterQueueName,
    CohortName,
    FlavorName,
    LocalQueueKey,
    LocalQueueName,
    Namespace,
    NodeName,
    PodUid,
    ResourceName,
)
from extender.model.pods import GATE, Node, Pod
from extender.model.questions import PlacementQuestion, PodInQuestion
from extender.model.quota import (
    ClusterQueue,
    Cohort,
    FairWeight,
    FlavorQuotas,
    Fungibility,
    LocalQueue,
    Preemption,
    PreemptionPolicy,
    Preference,
    QueueingStrategy,
    Quota,
    ResourceFlavor,
    ResourceGroup,
    Selector,
    Taint,
    Toleration,
)
from extender.pods.placement import Placement
from tests.sim.api import Api

GPU = ResourceName("nvidia.com/gpu")
UNIT = {CPU: 1000, GPU: 1}
NAMESPACE = Namespace("lab")
ANY = FlavorName("any")
"""A flavor without labels: any node will do."""
WEIGHTS = (0.0, 0.5, 1.0, 1.0, 300.0, 1e7)
TOLERATION = Toleration(key="dedicated", operator="Exists")


class Owner(NamedTuple):
    """A Job-like controller: it keeps *parallel* pods until *wanted* have succeeded; ``group``: as one pod group."""

    name: str
    queue: str
    parallel: int
    wanted: int
    requests: tuple[tuple[ResourceName, int], ...]
    priority: int
    priority_class: str
    run_ms: int
    group: str
    group_min: int
    hasty: bool
    stray: bool
    selector: tuple[tuple[str, str], ...]
    tolerations: tuple[Toleration, ...]


class Cluster:
    """The world around the extender. All chance comes from one generator."""

    def __init__(self, api: Api, rng: Random) -> None:
        self.api = api
        self.rng = rng
        self.owners: dict[str, Owner] = {}
        self.ends_ms: dict[PodUid, int] = {}
        self.made = 0
        self.succeeded: dict[str, int] = {}

    # --- administrators ---

    def build(self) -> None:
        """Draw a small tree, its queues and nodes."""
        rng = self.rng
        self.resources = (CPU, GPU) if rng.random() < 0.4 else (CPU,)
        self.flavors = [FlavorName(name) for name in "abc"[: rng.randint(1, 3)]]
        self.cohorts = [CohortName(f"team{n}") for n in range(rng.choice((0, 1, 1, 2, 3, 4)))]
        self.queues = [ClusterQueueName(f"q{n}") for n in range(rng.randint(2, 5))]
        self.api.put("namespace", NAMESPACE, NAMESPACE)
        for name, value in (("low", -10), ("high", 100)):
            self.api.put("class", name, (name, value))
        for flavor in self.flavors:
            self.put_flavor(flavor)
        self.put_flavor(ANY)
        for flavor in self.flavors:
            for n in range(2):
                node = Node(NodeName(f"{flavor}{n}"), (_label(flavor),), allocatable=((GPU, 8),))
                self.api.put("node", node.name, node)
        for n, cohort in enumerate(self.cohorts):
            if rng.random() < 0.7:
                self.put_cohort(cohort, parent=rng.choice([None, *self.cohorts[:n]]))
        for queue in self.queues:
            self.put_queue(queue)
            self.put_local(queue)

    def put_flavor(self, name: FlavorName) -> None:
        """Create a flavor; ``c`` is tainted."""
        taints = (Taint("dedicated", "x"),) if name == "c" else ()
        labels = () if name == ANY else (_label(name),)
        self.api.put("flavor", name, ResourceFlavor(name, labels, node_taints=taints))

    def _quota(self, *, limits: bool, most: int, resource: ResourceName) -> Quota:
        rng, unit = self.rng, UNIT[resource]
        nominal = rng.choice((0, *range(1, most + 1), *range(2, most + 1)))
        borrow = rng.randint(0, 4) * unit if limits and rng.random() < 0.3 else None
        lend = rng.randint(0, nominal) * unit if limits and rng.random() < 0.3 else None
        return Quota(nominal * unit, borrow, lend)

    def groups(self, *, limits: bool, most: int) -> tuple[ResourceGroup, ...]:
        """Resource groups: all resources together, or each for itself, cpu then on nodes of any pool."""
        rng = self.rng
        chosen = rng.sample(self.flavors, min(len(self.flavors), rng.choice((1, 1, 2))))
        if len(self.resources) == 1 or rng.random() < 0.6:
            return (self._group(self.resources, chosen, limits=limits, most=most),)
        return (
            self._group((CPU,), [ANY], limits=limits, most=most),
            self._group((GPU,), chosen, limits=limits, most=most),
        )

    def _group(
        self, covered: tuple[ResourceName, ...], flavors: list[FlavorName], *, limits: bool, most: int
    ) -> ResourceGroup:
        quotas = [
            FlavorQuotas(
                flavor, tuple((name, self._quota(limits=limits, most=most, resource=name)) for name in covered)
            )
            for flavor in flavors
        ]
        return ResourceGroup(covered, tuple(quotas))

    def put_cohort(self, name: CohortName, *, parent: CohortName | None) -> None:
        """Create or replace a Cohort."""
        groups = self.groups(limits=parent is not None, most=4) if self.rng.random() < 0.5 else ()
        weight = FairWeight(self.rng.choice(WEIGHTS))
        self.api.put("cohort", name, Cohort(name, parent=parent, resource_groups=groups, weight=weight))

    def put_queue(self, name: ClusterQueueName) -> None:
        """Create or replace a ClusterQueue."""
        rng = self.rng
        cohort = rng.choice([*self.cohorts, self.cohorts[0]]) if self.cohorts and rng.random() < 0.9 else None
        reclaim = rng.choice(
            (PreemptionPolicy.NEVER, PreemptionPolicy.LOWER_PRIORITY, PreemptionPolicy.ANY, PreemptionPolicy.ANY)
        )
        can_borrow = reclaim != PreemptionPolicy.NEVER and rng.random() < 0.3
        within = (
            PreemptionPolicy.NEVER,
            PreemptionPolicy.LOWER_PRIORITY,
            PreemptionPolicy.LOWER_PRIORITY,
            PreemptionPolicy.LOWER_OR_NEWER_EQUAL_PRIORITY,
        )
        record = ClusterQueue(
            name,
            cohort=cohort,
            resource_groups=self.groups(limits=cohort is not None, most=8),
            strategy=QueueingStrategy.STRICT_FIFO if rng.random() < 0.3 else QueueingStrategy.BEST_EFFORT_FIFO,
            namespace_selector=Selector(),
            fungibility=Fungibility(
                next_when_borrowing=rng.random() < 0.3,
                next_when_preempting=rng.random() < 0.6,
                preference=rng.choice(tuple(Preference)),
            ),
            preemption=Preemption(
                within_cluster_queue=rng.choice(within),
                reclaim_within_cohort=reclaim,
                borrow_within_cohort=PreemptionPolicy.LOWER_PRIORITY if can_borrow else PreemptionPolicy.NEVER,
                priority_threshold_max=rng.choice((None, 0, 5)) if can_borrow else None,
            ),
            weight=FairWeight(rng.choice(WEIGHTS)),
        )
        self.api.put("queue", name, record)

    def put_local(self, name: ClusterQueueName) -> None:
        """The LocalQueue of the same name."""
        local = LocalQueue(NAMESPACE, LocalQueueName(name), name)
        self.api.put("local", LocalQueueKey(NAMESPACE, local.name), local)

    def queue(self, name: ClusterQueueName) -> ClusterQueue | None:
        """The ClusterQueue as it is now."""
        record = self.api.objects["queue"].get(name)
        return record if isinstance(record, ClusterQueue) else None

    # --- owners ---

    def submit(self) -> None:
        """Somebody starts a Job, a pod group or a pod that nobody gates."""
        rng = self.rng
        self.made += 1
        name = f"job{self.made}"
        grouped = rng.random() < 0.25
        parallel = rng.randint(2, 4) if grouped else rng.choice((1, 1, 2, 3))
        requests = tuple(
            sorted((res, rng.choice((1, 1, 1, 2, 2, 3, 5)) * UNIT[res]) for res in self.resources if rng.random() < 0.8)
        )
        self.owners[name] = Owner(
            name,
            queue=rng.choice(self.queues),
            parallel=parallel,
            wanted=parallel if grouped else parallel * rng.choice((1, 2)),
            requests=requests or ((CPU, 1000),),
            priority=rng.choice((0, 0, 0, 0, 1, 2, 3)),
            priority_class=rng.choice(("",) * 8 + ("low", "high")),
            run_ms=rng.choice((1_000, 5_000, 20_000, 60_000)),
            group=name if grouped else "",
            group_min=rng.randint(1, parallel) if grouped and rng.random() < 0.2 else 0,
            hasty=rng.random() < 0.7,
            stray=not grouped and rng.random() < 0.1,
            selector=(_label(rng.choice(self.flavors)),) if rng.random() < 0.1 else (),
            tolerations=(TOLERATION,) if rng.random() < 0.8 else (),
        )

    def pods_of(self, owner: str) -> list[Pod]:
        """All pods of an owner that still exist."""
        return [pod for pod in self.api.pods.values() if pod.name.startswith(f"{owner}-")]

    def reconcile(self, now_ms: int) -> None:
        """Every owner makes the pods that it misses, and goes when it has what it wants."""
        mine: dict[str, list[Pod]] = {}
        for pod in self.api.pods.values():
            mine.setdefault(pod.name.partition("-")[0], []).append(pod)
        for owner in list(self.owners.values()):
            pods = mine.get(owner.name, [])
            succeeded = self.succeeded.get(owner.name, 0)
            if succeeded >= owner.wanted:
                del self.owners[owner.name]
                for pod in pods:
                    self.api.remove(pod.uid)
                continue
            busy = [pod for pod in pods if not pod.ended and not (owner.hasty and pod.deleting)]
            for _ in range(min(owner.parallel, owner.wanted - succeeded) - len(busy)):
                self._make(owner, now_ms)

    def _make(self, owner: Owner, now_ms: int) -> None:
        self.made += 1
        uid = PodUid(f"{self.rng.getrandbits(32):08x}-{self.made}")
        self.api.store(
            Pod(
                uid=uid,
                namespace=NAMESPACE,
                name=f"{owner.name}-{self.made}",
                resource_version="",
                created_ms=now_ms // 1000 * 1000,
                queue=LocalQueueName(owner.queue),
                requests=owner.requests,
                priority=owner.priority,
                priority_class=owner.priority_class,
                group=owner.group,
                group_total=owner.wanted if owner.group else 0,
                group_min=owner.group_min,
                gates=() if owner.stray else (GATE,),
                managed=not owner.stray,
                node_selector=owner.selector,
                tolerations=owner.tolerations,
            )
        )

    # --- scheduler and kubelets ---

    def schedule(self, pod: Pod, placement: Placement, now_ms: int) -> NodeName | None:
        """kube-scheduler's cycle for one ungated pod: filter, then bind. None if no node will do."""
        names = [str(name) for name in self.api.objects["node"]]
        question = PodInQuestion(
            pod.uid, pod.namespace, pod.name, pod.managed, pod.queue, pod.admission, pod.node_selector
        )
        try:
            verdict = placement.filter(PlacementQuestion(question, names))
        except NotYetSeen:
            return None
        selector = set(pod.node_selector)
        nodes = [name for name in verdict.nodes if selector <= set(self._labels(name))]
        if not nodes:
            return None
        node = NodeName(self.rng.choice(nodes))
        self.api.change(pod, node=node, phase="Running", ready=True)
        owner = self.owners.get(pod.name.partition("-")[0])
        self.ends_ms[pod.uid] = now_ms + (owner.run_ms if owner else 1_000)
        return node

    def _labels(self, node: str) -> tuple[tuple[str, str], ...]:
        record = self.api.objects["node"][node]
        return record.labels if isinstance(record, Node) else ()

    def waiting_for_node(self) -> list[Pod]:
        """The pods that kube-scheduler would look at."""
        return [
            pod
            for pod in self.api.pods.values()
            if pod.node is None and not pod.gates and not pod.deleting and pod.phase == "Pending"
        ]

    def live(self, now_ms: int, *, ending: bool = True) -> None:
        """Kubelets: finished pods succeed (now and then they fail), terminating ones go when their grace is over."""
        for uid, end_ms in list(self.api.doomed.items()):
            if end_ms <= now_ms:
                self.api.remove(uid)
        for uid, end_ms in list(self.ends_ms.items()) if ending else ():
            pod = self.api.pods.get(uid)
            if pod is None:
                del self.ends_ms[uid]
            elif end_ms <= now_ms and not pod.deleting:
                del self.ends_ms[uid]
                phase = "Failed" if self.rng.random() < 0.1 else "Succeeded"
                self.api.change(pod, phase=phase)
                owner = pod.name.partition("-")[0]
                self.succeeded[owner] = self.succeeded.get(owner, 0) + (phase == "Succeeded")

    def touch(self) -> None:
        """Somebody changes a pod in something that does not matter: only its resource version moves."""
        if self.api.pods:
            pod = self.rng.choice(list(self.api.pods.values()))
            self.api.store(msgspec.structs.replace(pod))


def _label(flavor: FlavorName) -> tuple[str, str]:
    """What the nodes of a flavor carry."""
    return ("pool", flavor)
