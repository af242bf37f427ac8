"""Whether pods may use the nodes of a flavor: taints, node selectors, required node affinity; and label selectors.

Only label keys that the flavor itself names count: a pod that asks for another label may still use it, since the
flavor says nothing about it. Source: flavor specification, sections 3.2 and 3.3.
"""

from collections.abc import Mapping

from extender.model.quota import Requirement, ResourceFlavor, Selector, Taint, Toleration
from extender.model.workload import PodSet

_BINDING = ("NoSchedule", "NoExecute")


def mismatch(pod_set: PodSet, flavor: ResourceFlavor) -> str:
    """Why the pods of *pod_set* cannot use *flavor*: one clause, empty if they can."""
    for taint in flavor.node_taints:
        if taint.effect in _BINDING and not any(
            _tolerates(toleration, taint) for toleration in (*pod_set.tolerations, *flavor.tolerations)
        ):
            shown = f"{taint.key}={taint.value}" if taint.value else taint.key
            return f"its taint {shown}:{taint.effect} is not tolerated"
    labels = dict(flavor.node_labels)
    for key, value in pod_set.node_selector:
        if key in labels and labels[key] != value:
            return f"the selector asks {key}={value}, the flavor has {labels[key]}"
    terms = [[one for one in term if one.key in labels] for term in pod_set.affinity]
    if terms and all(terms) and not any(all(holds(one, labels) for one in term) for term in terms):
        return "its labels match no term of the required node affinity"
    return ""


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    match toleration.operator:
        case "Exists":
            return True
        case "Lt" | "Gt":
            bound, value = _integer(toleration.value), _integer(taint.value)
            if bound is None or value is None:
                return False
            return value < bound if toleration.operator == "Lt" else value > bound
        case _:
            return toleration.value == taint.value


def _integer(text: str) -> int | None:
    digits = text[1:] if text[:1] in ("-", "+") else text
    return int(text) if digits.isascii() and digits.isdigit() and len(digits) < 20 else None


def holds(requirement: Requirement, labels: Mapping[str, str]) -> bool:
    """Whether *labels* satisfy *requirement*, by the rules of Kubernetes' label selectors."""
    value = labels.get(requirement.key)
    match requirement.operator:
        case "In":
            return value is not None and value in requirement.values
        case "NotIn":
            return value is None or value not in requirement.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt":
            number = None if value is None else _integer(value)
            bound = _integer(requirement.values[0]) if len(requirement.values) == 1 else None
            if number is None or bound is None:
                return False
            return number > bound if requirement.operator == "Gt" else number < bound
        case _:
            return False


def selects(selector: Selector | None, labels: Mapping[str, str]) -> bool:
    """Whether *selector* selects *labels*. None selects nothing, an empty one everything."""
    if selector is None:
        return False
    return all(labels.get(key) == value for key, value in selector.labels) and all(
        holds(requirement, labels) for requirement in selector.requirements
    )
