"""What ``kubectl cohort check`` says: whether an object in a file is as the service and the API server want it.

Quota objects are read by the same decoders as in the service, other objects by the rows of the table of kinds.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import orjson
import yaml
from rich.text import Text

from extender.cli.ask import Object
from extender.cli.jobs import describe_kind, read_job
from extender.jobs.kinds import SHIPPED, kinds_of
from extender.kube.decode_quota import CLUSTER_QUEUES, COHORTS, FLAVORS, LOCAL_QUEUES, PRIORITY_CLASSES
from extender.kube.documents import read_documents
from extender.kube.reflector import Codec
from extender.kube.resources import KUEUE_GROUP, KUEUE_VERSIONS
from extender.model.errors import UserError
from extender.model.events import ClusterQueueSeen
from extender.model.jobs import Kind
from extender.model.quota import ClusterQueue
from extender.settings import read_settings

_QUOTA: Final[dict[str, Codec]] = {
    "ClusterQueue": CLUSTER_QUEUES,
    "Cohort": COHORTS,
    "ResourceFlavor": FLAVORS,
    "LocalQueue": LOCAL_QUEUES,
    "WorkloadPriorityClass": PRIORITY_CLASSES,
}
_QUANTITIES: Final = ("nominalQuota", "borrowingLimit", "lendingLimit", "weight")


def check(configuration: str, path: str) -> tuple[Text, bool]:
    """What is found in each object of the file at *path*, and whether all of them are right.

    *configuration*: a file that names kinds and has rows for more; without one, all shipped kinds are known. Raises:
    UserError, when the file is not to be read, or its only object is of no kind that is known.
    """
    chosen = read_settings(configuration).kinds() if configuration else kinds_of(tuple(SHIPPED), ())
    kinds = {(kind.api_version, kind.kind): kind for kind in chosen}
    objects = _objects(path)
    words, good = Text(), True
    for found in objects:
        said, right = _checked(found, kinds, path, alone=len(objects) == 1)
        words.append_text(Text("\n") if words else Text()).append_text(said)
        good = good and right
    return words, good


def _checked(found: Object, kinds: dict[tuple[str, str], Kind], path: str, *, alone: bool) -> tuple[Text, bool]:
    version, kind = str(found.get("apiVersion")), str(found.get("kind"))
    group, _, short = version.rpartition("/")
    if group == KUEUE_GROUP and kind in _QUOTA:
        return _quota(found, kind, version if short not in KUEUE_VERSIONS else "")
    row = kinds.get((version, kind))
    if row is not None:
        job = read_job(row, found)
        return describe_kind(row, job), not job.problem
    known = ", ".join(f"{one} {name}" for one, name in kinds)
    if alone:
        raise UserError(
            f"{path}: no row for {version} {kind}; there are rows for {known}, and the quota objects of {KUEUE_GROUP}"
        )
    return Text(f"{version} {kind} {_name(found)}: not looked at", style="dim"), True


def _quota(found: Object, kind: str, odd_version: str) -> tuple[Text, bool]:
    """Whether a quota object would be accepted, and used."""
    problems, notes = list(_fractions(found.get("spec"), "spec")), list[str]()
    if odd_version:
        problems.append(f"apiVersion: {odd_version} is unknown; write {KUEUE_GROUP}/{KUEUE_VERSIONS[0]}")
    if not _name(found):
        problems.append("metadata.name: is missing")
    else:
        item = _QUOTA[kind].item(orjson.dumps(found))
        problems += [item.problem] if item.problem else []
        if isinstance(item.fact, ClusterQueueSeen):
            problems += _unsupported(item.fact.cluster_queue)
            notes += _pitfalls(item.fact.cluster_queue)
    words = Text(f"{kind} {_name(found) or '(no name)'}", style="bold")
    if not problems:
        words.append(": nothing wrong with it", style="green")
    for problem in problems:
        words.append(f"\n  {problem}", style="red")
    for note in notes:
        words.append(f"\n  note: {note}", style="yellow")
    return words, not problems


def _unsupported(queue: ClusterQueue) -> list[str]:
    """What the API server accepts and the service does not do."""
    if not queue.admission_checks:
        return []
    return ["spec.admissionChecksStrategy: admission checks are not supported; the ClusterQueue would be inactive"]


def _pitfalls(queue: ClusterQueue) -> list[str]:
    """What is right, but seldom meant."""
    notes = []
    if queue.namespace_selector is None:
        notes.append("spec.namespaceSelector is left out: pods of no namespace are admitted; write {} for all of them")
    if not queue.resource_groups and not queue.misconfigured:
        notes.append("spec.resourceGroups is empty: there is no quota for anything")
    return notes


def _fractions(value: Any, where: str) -> Iterator[str]:
    """Quantities that YAML takes for numbers with a fraction: the API server takes whole numbers and texts only."""
    if isinstance(value, list):
        for at, one in enumerate(value):
            yield from _fractions(one, f"{where}[{at}]")
    elif isinstance(value, dict):
        for name, one in value.items():
            if name in _QUANTITIES and isinstance(one, float):
                yield f'{where}.{name}: {one} is a number with a fraction; write it in quotes: "{one}"'
            else:
                yield from _fractions(one, f"{where}.{name}")


def _name(found: Object) -> str:
    metadata = found.get("metadata")
    return str(metadata.get("name") or "") if isinstance(metadata, dict) else ""


def _objects(path: str) -> list[Object]:
    try:
        documents = read_documents(Path(path).read_bytes())
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: is not YAML ({' '.join(str(error).split())})") from error
    try:
        found = msgspec.convert(documents, list[Object])
    except msgspec.ValidationError as error:
        raise UserError(f"{path}: holds something else than objects") from error
    if not found:
        raise UserError(f"{path}: holds no object")
    try:
        orjson.dumps(found)
    except TypeError as error:  # an alias within itself, a key that is a number
        raise UserError(f"{path}: cannot be written as JSON ({error})") from error
    return found
