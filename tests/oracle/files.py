"""Reads case files, ``*.jsonl`` and ``*.jsonl.gz``, and refuses what is no case, with file and line."""

import gzip
import json
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from extender.model.errors import UserError
from tests.oracle.cases import Json, facts
from tests.oracle.compare import differences

SUFFIXES = (".jsonl", ".jsonl.gz")
_SCENARIO = {
    "name": str,
    "fairSharing": bool,
    "flavors": list,
    "cohorts": list,
    "clusterQueues": list,
    "workloads": list,
}
_RESULT = {"cycles": list, "final": dict, "usage": dict, "borrowing": dict, "cohorts": dict}
_WORKLOAD = {"name": str, "clusterQueue": str, "priority": int, "created": int, "requests": dict, "count": int}
_WORKLOAD_MORE = {"minCount": int, "nodeSelector": dict, "tolerations": list, "admitted": dict}


def case_files(paths: list[Path]) -> Iterator[Path]:
    """The case files named by *paths*, folders opened, in order of name. Raises: UserError."""
    for path in paths:
        try:
            files = sorted(file for file in path.iterdir() if file.name.endswith(SUFFIXES)) if path.is_dir() else [path]
        except OSError as error:
            raise UserError(f"{path}: cannot be read ({error.strerror})") from error
        if not files:
            raise UserError(f"{path}: has no file that ends in {' or '.join(SUFFIXES)}")
        yield from files


def case_lines(path: Path) -> Iterator[tuple[str, str]]:
    """Where each case of the file stands, and its text. Raises: UserError, when the file cannot be read."""
    try:
        data = path.read_bytes()
        text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode()
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror or error})") from error
    except (EOFError, zlib.error) as error:
        raise UserError(f"{path}: is not a whole gzip file ({error})") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: is not text") from error
    lines = [(f"{path}:{number}", line) for number, line in enumerate(text.split("\n"), start=1) if line.strip()]
    if not lines:
        raise UserError(f"{path}: has no case")
    yield from lines


def read_case(where: str, text: str) -> Json:
    """The case in *text*: ``{"scenario": …, "result": …}``. Raises: UserError, naming *where* and what is wrong."""
    try:
        case = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{where}: is not JSON ({error})") from error
    try:
        _check(case, {"scenario": dict, "result": dict}, "case")
        scenario, result = case["scenario"], case["result"]
        _check(scenario, _SCENARIO, "scenario")
        for at, one in enumerate(scenario["workloads"]):
            _check(one, _WORKLOAD, f"scenario.workloads[{at}]", more=_WORKLOAD_MORE)
        _check(result, _RESULT | ({"shares": dict} if scenario["fairSharing"] else {}), "result", others=True)
        _check(result["final"], dict.fromkeys(("admitted", "counts"), dict), "result.final", others=True)
        _check(result["final"], dict.fromkeys(("preempted", "pending"), list), "result.final", others=True)
    except UserError as error:
        raise error.inside(where) from error
    _try(f"{where}: {scenario['name']}: scenario", lambda: facts(scenario))
    _try(f"{where}: {scenario['name']}: result", lambda: differences(result, result))
    return {"scenario": scenario, "result": result}


def read_cases(paths: list[Path]) -> Iterator[Json]:
    """Every case of the files and folders *paths*. Raises: UserError, at the first that is none."""
    for path in case_files(paths):
        for where, text in case_lines(path):
            yield read_case(where, text)


def _check(
    found: object,
    wanted: dict[str, type],
    where: str,
    *,
    more: dict[str, type] | None = None,
    others: bool = False,
) -> None:
    """That *found* has all the fields *wanted*, may have *more*, and *others* too only if that is said."""
    if not isinstance(found, dict):
        raise UserError(f"{where} is not an object")
    allowed = wanted | (more or {})
    for key in wanted:
        if found.get(key) is None:
            raise UserError(f"{where}.{key} is missing")
    for key, value in found.items():
        if key not in allowed and not others:
            raise UserError(f"{where}.{key} is not known; known are {', '.join(allowed)}")
        kind = allowed.get(key, object)
        if value is not None and (not isinstance(value, kind) or (kind is int and isinstance(value, bool))):
            raise UserError(f"{where}.{key} is not {_KINDS[kind]}")


_KINDS = {str: "a text", bool: "true or false", list: "a list", dict: "an object", int: "a whole number"}


def _try(where: str, read: Callable[[], Iterable[object]]) -> None:
    """Read all of it. Raises: UserError, when a field is missing or of another kind."""
    try:
        for _ in read():
            pass
    except KeyError as error:
        raise UserError(f"{where}: {error.args[0]} is missing") from error
    except (UserError, ValueError, TypeError, AttributeError) as error:
        raise UserError(f"{where}: {error}") from error
