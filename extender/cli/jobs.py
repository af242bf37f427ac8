"""What ``kubectl cohort`` says about Jobs: why one waits, and what a row of the table of kinds finds in an object."""

import copy

import msgspec
import orjson
from rich.text import Text

from extender.cli.ask import Object
from extender.kube.decode_jobs import codec
from extender.model.amounts import format_amount
from extender.model.errors import UserError
from extender.model.jobs import ACTIVE_ANNOTATION, EVICTED_ANNOTATION, Job, JobSeen, Kind
from extender.model.names import ResourceName
from extender.model.pods import ADMISSION_ANNOTATION, ADMITTED_CONDITION, MANAGED_LABEL, QUEUE_NAME
from extender.model.trees import add_missing


def describe_job(found: Object, pods: list[Object]) -> Text:
    """One paragraph about a Job and its pods: its queue, whether it is admitted, and what it waits for."""
    metadata = found["metadata"]
    words = Text(f"{metadata['namespace']}/{metadata['name']}", style="bold")
    words.append(f"  queue {queue_of(metadata) or 'none'}\n")
    template = ((found.get("spec") or {}).get("template") or {}).get("metadata") or {}
    if queue_of(template) and not queue_of(metadata):
        words.append(
            f"its pods are queued one by one, by queue {queue_of(template)} of their template: "
            "kubectl cohort explain pod says why one waits"
        )
    else:
        describe_state(words, found)
    words.append(f"\n{_pods(pods)}")
    return words


def queue_of(metadata: Object) -> str:
    """The LocalQueue that an object names, by annotation or label; empty if none."""
    annotations, labels = metadata.get("annotations") or {}, metadata.get("labels") or {}
    return str(annotations.get(QUEUE_NAME) or labels.get(QUEUE_NAME) or "")


def describe_state(words: Text, found: Object) -> None:
    """Add to *words* whether a Job, or another queued object, is admitted, and what it waits for."""
    metadata, status = found["metadata"], found.get("status") or {}
    annotations, labels = metadata.get("annotations") or {}, metadata.get("labels") or {}
    reasons = [
        f"{condition.get('reason')}: {condition.get('message')}"
        for condition in status.get("conditions") or ()
        if condition["type"] == ADMITTED_CONDITION and condition["status"] == "False"
    ]
    if ADMISSION_ANNOTATION in annotations:
        words.append(_admission(admission_in(annotations)), style="green")
    elif annotations.get(ACTIVE_ANNOTATION) == "false":
        words.append(f"stopped by hand; remove its annotation {ACTIVE_ANNOTATION} to queue it again", style="yellow")
    elif reasons:
        words.append(reasons[0], style="yellow")
    elif labels.get(MANAGED_LABEL) == "true":
        words.append(
            "waits for admission; if it waits for more than two seconds, the reason is written", style="yellow"
        )
    else:
        words.append("does not wait for quota")
    if EVICTED_ANNOTATION in annotations:
        words.append("\nwas evicted and is queued again", style="yellow")


def admission_in(annotations: dict[str, str]) -> Object:
    """What the annotation of an admission holds; nothing, if somebody wrote something else there."""
    try:
        written = orjson.loads(annotations[ADMISSION_ANNOTATION])
    except orjson.JSONDecodeError:
        return {}
    return written if isinstance(written, dict) else {}


class _Set(msgspec.Struct):
    count: int = 0
    flavors: dict[str, str] = {}
    usage: dict[str, int] = {}


def _admission(written: Object) -> str:
    said = f"admitted by ClusterQueue {written.get('clusterQueue')}"
    try:
        sets = msgspec.convert(written.get("podSets") or [], list[_Set])
    except msgspec.ValidationError:
        return said
    parts = [
        f"{part.count} pods"
        + "".join(
            f", {format_amount(part.usage.get(name, 0), ResourceName(name))} {name} of flavor {flavor}"
            for name, flavor in sorted(part.flavors.items())
        )
        for part in sets
    ]
    return f"{said}: {'; '.join(parts)}"


def _pods(pods: list[Object]) -> str:
    phases: dict[str, int] = {}
    for pod in pods:
        leaving = "deletionTimestamp" in pod["metadata"]
        phase = "leaving" if leaving else str((pod.get("status") or {}).get("phase", "Pending")).lower()
        phases[phase] = phases.get(phase, 0) + 1
    return "pods: " + (", ".join(f"{count} {phase}" for phase, count in sorted(phases.items())) or "none")


def read_job(kind: Kind, found: Object) -> Job:
    """*found* as we would read it, if it named a queue and our webhook had seen it.

    Raises: UserError, when its row finds nothing of use.
    """
    found = copy.deepcopy(found)
    for one in kind.additions:
        add_missing(found, one.path, key=one.key, item=one.item)
    metadata = {**(found.get("metadata") or {}), "uid": "u", "resourceVersion": "1", "labels": {QUEUE_NAME: "check"}}
    item = codec(kind).item(orjson.dumps({**found, "metadata": metadata}))
    if not isinstance(item.fact, JobSeen) or not item.fact.job.pods:
        raise UserError(item.problem or "not an object that can be queued: a controller stands above it")
    return item.fact.job


def describe_kind(kind: Kind, job: Job) -> Text:
    """What the row *kind* found in an object: whether it is held, its pods, whether it is over."""
    words = Text(f"{kind.api_version} {kind.kind}", style="bold")
    words.append(f"\nsuspended by {'.'.join(kind.suspend)}: {'yes' if job.suspended else 'not now'}")
    for pods in job.pods:
        asked = ", ".join(f"{format_amount(amount, name)} {name}" for name, amount in pods.requests) or "nothing"
        words.append(f"\n{pods.name}: {pods.count} pods of {asked} each ({'.'.join(pods.path)})")
    words.append(f"\nfinished: {'yes' if job.finished else 'no'}; active pods: {job.running}")
    if job.problem:
        words.append(f"\n{job.problem}", style="red")
    return words
