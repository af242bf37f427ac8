"""Compares decisions with recorded cases: ``python -m tests.oracle PATH… [--policy P] [--show NAME] [--json FILE]``.

Prints ``family agree/total`` per family. Under the reference policy every case has to agree; under the default policy
those of ``differences.txt`` have to differ and all others to agree. Exits 1 if that is not so, and 2 if something is no
case; the others are compared all the same.
"""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from extender.model.errors import UserError
from tests.oracle.cases import Json
from tests.oracle.compare import differences
from tests.oracle.drive import POLICIES, policy_named, run
from tests.oracle.files import case_files, case_lines, read_case, read_cases
from tests.oracle.show import show

BROKEN_TOLD_MAX = 20
DIFFERENCES = Path(__file__).with_name("differences.txt")


def known_differences() -> dict[str, str]:
    """Cases on which the default policy decides otherwise on purpose, with the ADRs that say why."""
    lines = (line.split("#")[0].split() for line in DIFFERENCES.read_text().splitlines())
    return {words[0]: " ".join(words[1:]) for words in lines if words}


def result_of(case: Json, policy: str) -> Json:
    """What the engine decides on *case* under the policy of that name."""
    scenario = case["scenario"]
    return run(scenario, policy_named(policy, fair_sharing=scenario["fairSharing"]))


def verdict(case: Json, policy: str) -> tuple[bool, list[str]]:
    """Whether *case* is as it should be under *policy*, and where it differs from the record."""
    found = differences(case["result"], result_of(case, policy))
    on_purpose = policy == "default" and case["scenario"]["name"] in known_differences()
    return bool(found) == on_purpose, found


def main(arguments: list[str]) -> int:
    """The command; 0 if all is as it should be."""
    parser = argparse.ArgumentParser(prog="python -m tests.oracle", description=__doc__)
    parser.add_argument("paths", nargs="+", type=Path, metavar="PATH")
    parser.add_argument("--policy", choices=POLICIES, default="reference")
    parser.add_argument("--show", metavar="NAME", help="draw this case and both decisions")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the counts and all differences")
    given = parser.parse_args(arguments)
    try:
        return _show(given) if given.show else _compare(given)
    except UserError as error:
        print(error, file=sys.stderr)
        return 2


def _show(given: argparse.Namespace) -> int:
    for case in read_cases(given.paths):
        if case["scenario"]["name"] == given.show:
            print("\n".join(show(case, result_of(case, given.policy))))
            return 0
    print(f"no case {given.show}", file=sys.stderr)
    return 1


def _sound(paths: list[Path], broken: list[str]) -> Iterator[Json]:
    """Every case of *paths*; what is none is noted in *broken*."""
    for path in case_files(paths):
        try:
            lines = list(case_lines(path))
        except UserError as error:
            broken.append(str(error))
            continue
        for where, text in lines:
            try:
                yield read_case(where, text)
            except UserError as error:
                broken.append(str(error))


def _compare(given: argparse.Namespace) -> int:
    broken: list[str] = []
    total: Counter[str] = Counter()
    agree: Counter[str] = Counter()
    wrong: dict[str, list[str]] = {}
    differ: list[str] = []
    for case in _sound(given.paths, broken):
        name = case["scenario"]["name"]
        family = name.split("-")[0]
        right, found = verdict(case, given.policy)
        total[family] += 1
        agree[family] += not found
        if found:
            differ.append(name)
        if not right:
            wrong[name] = found or ["agrees, but differences.txt says that it differs"]
    for family in sorted(total):
        print(f"{family} {agree[family]}/{total[family]}")
    for line in [*(f"{name}: {found[0]}" for name, found in wrong.items()), *broken[:BROKEN_TOLD_MAX]]:
        print(line, file=sys.stderr)
    if len(broken) > BROKEN_TOLD_MAX:
        print(f"and {len(broken) - BROKEN_TOLD_MAX} more that are no cases", file=sys.stderr)
    if given.json:
        counts = {family: {"agree": agree[family], "total": total[family]} for family in sorted(total)}
        report = json.dumps({"families": counts, "differ": differ, "wrong": wrong, "broken": broken}, indent=1)
        try:
            given.json.write_text(report + "\n")
        except OSError as error:
            raise UserError(f"{given.json}: cannot be written ({error.strerror})") from error
    return 2 if broken else int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
