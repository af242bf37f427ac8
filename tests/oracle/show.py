"""Draws one case: its tree with quotas, and both decisions side by side, cycle by cycle."""

from collections.abc import Iterator
from itertools import zip_longest

from tests.oracle.cases import Json
from tests.oracle.compare import decisions, differences

_WIDTH = 72


def show(case: Json, have: Json) -> Iterator[str]:
    """The lines of the drawing; *have* is our result."""
    scenario, want = case["scenario"], case["result"]
    yield f"{scenario['name']}   fair sharing {'on' if scenario['fairSharing'] else 'off'}"
    yield ""
    yield from draw(scenario)
    yield ""
    yield f"{'recorded':<{_WIDTH}} ours"
    for left, right in zip_longest(want["cycles"], have["cycles"]):
        yield from _side_by_side(left, right)
    yield ""
    yield from differences(want, have) or ["they agree"]


def draw(scenario: Json) -> Iterator[str]:
    """The tree: cohorts, cluster queues with their rules, and their workloads."""
    cohorts = {obj["metadata"]["name"]: obj.get("spec") or {} for obj in scenario["cohorts"]}
    queues = {obj["metadata"]["name"]: obj["spec"] for obj in scenario["clusterQueues"]}
    named = {spec.get("parentName") for spec in cohorts.values()} | {spec.get("cohortName") for spec in queues.values()}
    for name in sorted(name for name in named if name):
        cohorts.setdefault(name, {})
    for name in sorted(cohorts):
        if not cohorts[name].get("parentName"):
            yield from _draw_cohort(scenario, cohorts, queues, name, 0)
    for name in sorted(queues):
        if not queues[name].get("cohortName"):
            yield from _draw_queue(scenario, queues[name], name, 0)


def _draw_cohort(scenario: Json, cohorts: Json, queues: Json, name: str, depth: int) -> Iterator[str]:
    yield f"{'  ' * depth}{name}{_weight(cohorts[name])}{_quotas(cohorts[name])}"
    for child in sorted(cohorts):
        if cohorts[child].get("parentName") == name:
            yield from _draw_cohort(scenario, cohorts, queues, child, depth + 1)
    for queue in sorted(queues):
        if queues[queue].get("cohortName") == name:
            yield from _draw_queue(scenario, queues[queue], queue, depth + 1)


def _draw_queue(scenario: Json, spec: Json, name: str, depth: int) -> Iterator[str]:
    rules = {**(spec.get("preemption") or {}), **(spec.get("flavorFungibility") or {})}
    shown = " ".join(f"{key}={value}" for key, value in rules.items() if value not in ("Never", None))
    strategy = spec.get("queueingStrategy", "BestEffortFIFO")
    yield f"{'  ' * depth}{name} {strategy}{_weight(spec)}{_quotas(spec)}  {shown}".rstrip()
    for one in scenario["workloads"]:
        if one["clusterQueue"] == name:
            needs = " ".join(f"{key}={amount}" for key, amount in one["requests"].items())
            count = f"{one.get('minCount', one['count'])}..{one['count']}" if one.get("minCount") else one["count"]
            held = one.get("admitted")
            state = f"runs on {held['flavors']} since {held['at']}" if held else "waits"
            yield f"{'  ' * depth}  · {one['name']} {count} x {needs} priority={one['priority']} {state}"


def _weight(spec: Json) -> str:
    weight = (spec.get("fairSharing") or {}).get("weight")
    return "" if weight is None else f" weight={weight}"


def _quotas(spec: Json) -> str:
    shown = []
    for group in spec.get("resourceGroups") or ():
        for flavor in group["flavors"]:
            for one in flavor["resources"]:
                limits = "".join(
                    f" {word}{one[key]}"
                    for word, key in (("borrows≤", "borrowingLimit"), ("lends≤", "lendingLimit"))
                    if one.get(key) is not None
                )
                shown.append(f"{flavor['name']}/{one['name']}={one['nominalQuota']}{limits}")
    return f"  [{', '.join(shown)}]" if shown else ""


def _side_by_side(want: Json | None, have: Json | None) -> Iterator[str]:
    number = (want or have or {})["cycle"]
    same = want is not None and have is not None and decisions(want) == decisions(have)
    yield f"{'·' if same else '≠'} cycle {number}"
    for left, right in zip_longest(_lines(want), _lines(have), fillvalue=""):
        yield f"  {left:<{_WIDTH - 2}.{_WIDTH - 2}} {right}"


def _lines(cycle: Json | None) -> list[str]:
    if cycle is None:
        return []
    admitted = {one["name"]: one for one in cycle["admitted"]}
    lines = []
    for names in cycle["order"].values():
        for name in names:
            head = cycle["heads"].get(name, {})
            fate = "admitted" if name in admitted else (cycle.get("pending") or {}).get(name, "")
            lines.append(f"{name} {head.get('mode')} level {head.get('borrows')} {head.get('flavors', '')} {fate}")
    lines += [f"  evicts {one['name']} for {one['by']}: {one['reason']}" for one in cycle["preempted"]]
    return lines
