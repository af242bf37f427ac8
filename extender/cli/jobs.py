"""What ``kubectl cohort`` says about Jobs: why one waits, and what a row of the table of kinds finds in an object."""

from pathlib import Path
from typing import Any

import msgspec
import orjson
import yaml
from rich.text import Text

from extender.kube.decode_jobs import codec
from extender.model.amounts import format_amount
from extender.model.errors import UserError
from extender.model.jobs import ACTIVE_ANNOTATION, EVICTED_ANNOTATION, Job, JobSeen, Kind
from extender.model.pods import ADMISSION_ANNOTATION, ADMITTED_CONDITION, MANAGED_LABEL, QUEUE_NAME
from extender.settings import Settings, read_settings

Object = dict[str, Any]


def describe_job(found: Object, pods: list[Object]) -> Text:
    """One paragraph about a Job and its pods: its queue, whether it is admitted, and what it waits for."""
    metadata, status = found["metadata"], found.get("status") or {}
    annotations, labels = metadata.get("annotations") or {}, metadata.get("labels") or {}
    words = Text(f"{metadata['namespace']}/{metadata['name']}", style="bold")
    words.append(f"  queue {annotations.get(QUEUE_NAME) or labels.get(QUEUE_NAME) or 'none'}\n")
    reasons = [
        f"{condition.get('reason')}: {condition.get('message')}"
        for condition in status.get("conditions") or ()
        if condition["type"] == ADMITTED_CONDITION and condition["status"] == "False"
    ]
    if ADMISSION_ANNOTATION in annotations:
        words.append(_admission(orjson.loads(annotations[ADMISSION_ANNOTATION])), style="green")
    elif annotations.get(ACTIVE_ANNOTATION) == "false":
        words.append(f"stopped by hand; remove its annotation {ACTIVE_ANNOTATION} to queue it again", style="yellow")
    elif reasons:
        words.append(reasons[0], style="yellow")
    elif labels.get(MANAGED_LABEL) == "true":
        words.append("waits for admission; not looked at yet", style="yellow")
    else:
        words.append("does not wait for quota")
    if EVICTED_ANNOTATION in annotations:
        words.append("\nwas evicted and is queued again", style="yellow")
    words.append(f"\n{_pods(pods)}")
    return words


def _admission(written: Object) -> str:
    parts = [
        f"{part['count']} pods" + "".join(f", {name} of {flavor}" for name, flavor in sorted(part["flavors"].items()))
        for part in written.get("podSets") or ()
    ]
    return f"admitted by ClusterQueue {written.get('clusterQueue')}: {'; '.join(parts)}"


def _pods(pods: list[Object]) -> str:
    phases: dict[str, int] = {}
    for pod in pods:
        leaving = "deletionTimestamp" in pod["metadata"]
        phase = "leaving" if leaving else str((pod.get("status") or {}).get("phase", "Pending")).lower()
        phases[phase] = phases.get(phase, 0) + 1
    return "pods: " + (", ".join(f"{count} {phase}" for phase, count in sorted(phases.items())) or "none")


def check(configuration: str, path: str) -> Text:
    """What the rows of the *configuration* file find in the object at *path*. Raises: UserError."""
    settings = read_settings(configuration) if configuration else Settings()
    found = _object(path)
    kinds = {(kind.api_version, kind.kind): kind for kind in settings.kinds()}
    named = (str(found.get("apiVersion")), str(found.get("kind")))
    kind = kinds.get(named)
    if kind is None:
        known = ", ".join(f"{version} {name}" for version, name in kinds)
        raise UserError(f"{path}: no row for {named[0]} {named[1]}; there are rows for {known}")
    return _told(kind, read_job(kind, found))


def read_job(kind: Kind, found: Object) -> Job:
    """*found* as we would read it, as if it named a queue. Raises: UserError, when its row finds nothing of use."""
    metadata = {**(found.get("metadata") or {}), "uid": "u", "resourceVersion": "1", "labels": {QUEUE_NAME: "check"}}
    item = codec(kind).item(orjson.dumps({**found, "metadata": metadata}))
    if not isinstance(item.fact, JobSeen) or not item.fact.job.pods:
        raise UserError(item.problem or "not an object that can be queued: a controller stands above it")
    return item.fact.job


def _told(kind: Kind, job: Job) -> Text:
    words = Text(f"{kind.api_version} {kind.kind}", style="bold")
    words.append(f"\nsuspended by {'.'.join(kind.suspend)}: {'yes' if job.suspended else 'not now'}")
    for pods in job.pods:
        asked = ", ".join(f"{format_amount(amount, name)} {name}" for name, amount in pods.requests) or "nothing"
        words.append(f"\n{pods.name}: {pods.count} pods of {asked} each ({'.'.join(pods.path)})")
    words.append(f"\nfinished: {'yes' if job.finished else 'no'}; active pods: {job.running}")
    if job.problem:
        words.append(f"\n{job.problem}", style="red")
    return words


def _object(path: str) -> Object:
    try:
        found = yaml.safe_load(Path(path).read_bytes())
    except (OSError, yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read ({type(error).__name__})") from error
    try:
        return msgspec.convert(found, Object)
    except msgspec.ValidationError as error:
        raise UserError(f"{path}: is not one object") from error
