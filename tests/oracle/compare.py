"""Where two results differ: only in what has to agree (the case format, section 2)."""

from collections.abc import Iterator

from extender.model.amounts import quota_amount
from extender.model.names import ResourceName
from tests.oracle.cases import Json


def differences(want: Json, have: Json) -> list[str]:
    """What of *have*, our result, is not as in *want*, the recorded one; empty if they agree."""
    return [
        *_cycles(want["cycles"], have["cycles"]),
        *_final(want["final"], have["final"]),
        *_amounts("usage", want["usage"], have["usage"]),
        *_amounts("borrowing", want["borrowing"], have["borrowing"]),
        *_cohorts(want["cohorts"], have["cohorts"]),
        *_shares(want.get("shares") or {}, have.get("shares") or {}),
    ]


def decisions(cycle: Json) -> tuple[list[object], list[object]]:
    """Admissions and victims of a cycle, comparable."""
    admitted = [(one["name"], sorted(one["flavors"].items()), one["count"]) for one in cycle["admitted"]]
    preempted = [(one["name"], one["by"], one["reason"]) for one in cycle["preempted"]]
    return sorted(admitted), sorted(preempted)


def _cycles(want: list[Json], have: list[Json]) -> Iterator[str]:
    wanted, had = _trimmed(want), _trimmed(have)
    for number in range(max(len(wanted), len(had))):
        left = wanted[number] if number < len(wanted) else ([], [])
        right = had[number] if number < len(had) else ([], [])
        for what, one, other in zip(("admitted", "preempted"), left, right, strict=True):
            if one != other:
                yield f"cycle {number + 1}, {what}: want {one}, have {other}"


def _trimmed(cycles: list[Json]) -> list[tuple[list[object], list[object]]]:
    """The decisions without idle cycles at the end."""
    made = [decisions(cycle) for cycle in cycles]
    while made and made[-1] == ([], []):
        made.pop()
    return made


def _final(want: Json, have: Json) -> Iterator[str]:
    for key in ("admitted", "counts", "preempted", "pending"):
        if want[key] != have[key]:
            yield f"final {key}: want {want[key]}, have {have[key]}"


def _amounts(what: str, want: Json, have: Json) -> Iterator[str]:
    left, right = _flat(want), _flat(have)
    for key in sorted(left.keys() | right.keys()):
        if left.get(key, 0) != right.get(key, 0):
            yield f"{what} of {'/'.join(key)}: want {left.get(key, 0)}, have {right.get(key, 0)}"


def _flat(nested: Json) -> dict[tuple[str, str, str], int]:
    return {
        (node, flavor, resource): amount if isinstance(amount, int) else quota_amount(amount, ResourceName(resource))
        for node, flavors in nested.items()
        for flavor, resources in flavors.items()
        for resource, amount in resources.items()
    }


def _cohorts(want: Json, have: Json) -> Iterator[str]:
    if want.keys() != have.keys():
        yield f"cohorts: want {sorted(want)}, have {sorted(have)}"
        return
    for part in ("usage", "subtreeQuota"):
        yield from _amounts(
            f"cohort {part}",
            {name: cohort[part] for name, cohort in want.items()},
            {name: cohort[part] for name, cohort in have.items()},
        )


def _shares(want: Json, have: Json) -> Iterator[str]:
    for kind in sorted(want.keys() | have.keys()):
        for name in sorted(want[kind].keys() | have[kind].keys()):
            left, right = want[kind][name], have[kind][name]
            if float(left["precise"]) != float(right["precise"]) or left["weighted"] != right["weighted"]:
                yield f"share of {name}: want {left}, have {right}"
