"""Makes the small set of cases that the repository keeps: ``python -m tests.oracle.generate [--seed N] [--count N]``.

Scenarios are random but seeded; results are the engine's own under the reference policy, written down once it agreed
with every recorded case of the reference. They keep later changes from deciding differently unnoticed.
"""

import argparse
import json
import sys
from pathlib import Path
from random import Random

from extender.model.names import CPU
from extender.model.policy import Policy
from tests.oracle.cases import Json
from tests.oracle.drive import run

FOLDER = Path(__file__).with_name("cases")
FAMILIES = ("plain", "tree", "priority", "sharing", "several", "partial")
LARGEST = {"cpu": 8, "gpu": 6}


class Maker:
    """Makes the scenarios of one family."""

    def __init__(self, family: str, seed: int) -> None:
        self.family = family
        self.random = Random(f"{family} {seed}")
        self.fair = family == "sharing" or (family in ("several", "partial") and seed % 2 == 1)
        self.resources = ["cpu", "gpu"] if family in ("several", "partial") else ["cpu"]
        self.flavors = ["red", "blue"] if family in ("several", "partial") else ["red"]

    def scenario(self, name: str) -> Json:
        """One scenario."""
        depth = self.random.randint(1, 3) if self.family in ("tree", "sharing", "several") else 1
        cohorts = [self._cohort(number, depth) for number in range(depth)]
        queues = [self._queue(number, depth) for number in range(self.random.randint(2, 5))]
        workloads = [self._workload(number, queues) for number in range(self.random.randint(6, 24))]
        return {
            "name": name,
            "fairSharing": self.fair,
            "flavors": [self._flavor(flavor) for flavor in self.flavors],
            "cohorts": cohorts,
            "clusterQueues": queues,
            "workloads": self._start(workloads, queues),
        }

    def _chance(self, share: float) -> bool:
        return self.random.random() < share

    def _flavor(self, name: str) -> Json:
        spec: Json = {"nodeLabels": {"color": name}}
        if name == "blue" and self._chance(0.3):
            spec["nodeTaints"] = [{"key": "blue", "value": "yes", "effect": "NoSchedule"}]
        return {"metadata": {"name": name}, "spec": spec}

    def _cohort(self, number: int, depth: int) -> Json:
        spec: Json = {"resourceGroups": self._groups(limits=number > 0, most=3)}
        if number > 0:
            spec["parentName"] = f"cohort{self.random.randrange(number)}"
        if self._chance(0.5):
            spec["fairSharing"] = {"weight": self.random.choice(["0.5", "1", "3"])}
        return {"metadata": {"name": f"cohort{number}"}, "spec": spec}

    def _groups(self, *, limits: bool, most: int) -> list[Json]:
        flavors = []
        for flavor in self.flavors:
            rows = []
            for resource in self.resources:
                row: Json = {"name": resource, "nominalQuota": str(self.random.randint(0, most))}
                if limits and self._chance(0.3):
                    row["borrowingLimit"] = str(self.random.randint(0, most))
                if limits and self._chance(0.3):
                    row["lendingLimit"] = str(self.random.randint(0, int(row["nominalQuota"])))
                rows.append(row)
            flavors.append({"name": flavor, "resources": rows})
        return [{"coveredResources": self.resources, "flavors": flavors}]

    def _queue(self, number: int, depth: int) -> Json:
        preemption: Json = {}
        if self.family != "plain":
            preemption["withinClusterQueue"] = self.random.choice(
                ["Never", "LowerPriority", "LowerOrNewerEqualPriority"]
            )
            preemption["reclaimWithinCohort"] = self.random.choice(["Never", "LowerPriority", "Any", "Any"])
            if preemption["reclaimWithinCohort"] != "Never" and not self.fair and self._chance(0.4):
                preemption["borrowWithinCohort"] = {"policy": "LowerPriority"}
                if self._chance(0.5):
                    preemption["borrowWithinCohort"]["maxPriorityThreshold"] = self.random.randint(0, 2)
        spec: Json = {
            "cohortName": f"cohort{self.random.randrange(depth)}",
            "resourceGroups": self._groups(limits=True, most=LARGEST["cpu"]),
            "queueingStrategy": self.random.choice(["StrictFIFO", "BestEffortFIFO", "BestEffortFIFO"]),
            "preemption": preemption,
        }
        if self.family in ("several", "partial"):
            spec["flavorFungibility"] = {
                "whenCanBorrow": self.random.choice(["MayStopSearch", "TryNextFlavor"]),
                "whenCanPreempt": self.random.choice(["MayStopSearch", "TryNextFlavor"]),
            }
        if self.fair and self._chance(0.6):
            spec["fairSharing"] = {"weight": self.random.choice(["0", "0.5", "1", "2"])}
        return {"metadata": {"name": f"queue{number}"}, "spec": spec}

    def _workload(self, number: int, queues: list[Json]) -> Json:
        asked = self.random.sample(self.resources, self.random.randint(1, len(self.resources)))
        made: Json = {
            "name": f"w{number:02}",
            "clusterQueue": self.random.choice(queues)["metadata"]["name"],
            "priority": self.random.randint(0, 3),
            "created": 1_000 + 10 * number + self.random.randrange(10),
            "requests": {name: str(self.random.randint(1, 3)) for name in sorted(asked)},
            "count": self.random.randint(1, 4 if self.family == "partial" else 2),
        }
        if self.family == "partial" and made["count"] > 1 and self._chance(0.7):
            made["minCount"] = self.random.randint(1, made["count"])
        if len(self.flavors) > 1 and self._chance(0.15):
            made["nodeSelector"] = {"color": self.random.choice(self.flavors)}
        return made

    def _start(self, workloads: list[Json], queues: list[Json]) -> list[Json]:
        """Let some workloads run already: those of the first half that get in when they are alone."""
        early = workloads[: len(workloads) // 2]
        alone = {
            "name": "early",
            "fairSharing": False,
            "flavors": [{"metadata": {"name": flavor}, "spec": {}} for flavor in self.flavors],
            "cohorts": [],
            "clusterQueues": [
                {**queue, "spec": {**queue["spec"], "preemption": {}, "cohortName": "all"}} for queue in queues
            ],
            "workloads": early,
        }
        final = run(alone, Policy.reference(fair_sharing=False))["final"]
        for place, one in enumerate(early):
            if one["name"] in final["admitted"] and self.family != "plain":
                one["admitted"] = {
                    "flavors": final["admitted"][one["name"]],
                    "at": 2_000 + place // 2,
                    "count": final["counts"][one["name"]],
                }
                one.pop("nodeSelector", None)
        return workloads


def as_text(nested: Json) -> Json:
    """Amounts by node, flavor and resource as quantities."""
    return {
        node: {
            flavor: {name: f"{amount}m" if name == CPU else str(amount) for name, amount in row.items()}
            for flavor, row in flavors.items()
        }
        for node, flavors in nested.items()
    }


def case(scenario: Json) -> Json:
    """*scenario* with its result under the reference policy, in the format of the cases."""
    result = run(scenario, Policy.reference(fair_sharing=scenario["fairSharing"]))
    result["cyclesRun"] = len(result["cycles"])
    for part in ("usage", "borrowing"):
        result[part] = as_text(result[part])
    for cohort in result["cohorts"].values():
        for part in ("usage", "subtreeQuota"):
            cohort[part] = as_text({"": cohort[part]})[""]
    for kind in (result.get("shares") or {}).values():
        for one in kind.values():
            one["precise"] = repr(one["precise"])
    return {"scenario": scenario, "result": json.loads(json.dumps(result))}


def main(arguments: list[str]) -> int:
    """Write the files anew."""
    parser = argparse.ArgumentParser(prog="python -m tests.oracle.generate", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=12, help="cases per family")
    given = parser.parse_args(arguments)
    FOLDER.mkdir(exist_ok=True)
    for family in FAMILIES:
        lines = []
        for number in range(given.count):
            name = f"{family}-made-{number:03}"
            lines.append(json.dumps(case(Maker(family, given.seed * 1_000 + number).scenario(name)), sort_keys=True))
        (FOLDER / f"{family}.jsonl").write_text("\n".join(lines) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
