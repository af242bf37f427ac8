"""Compares decisions with recorded cases: ``python -m tests.oracle PATH… [--policy P] [--show NAME] [--json FILE]``.

Prints ``family agree/total`` per family. Under the reference policy every case has to agree; under the default policy
those of ``differences.txt`` have to differ and all others to agree. Exits 1 if that is not so.
"""

import argparse
import json
import sys
from collections import Counter
from pathlib import Path

from tests.oracle.cases import Json, read_cases
from tests.oracle.compare import differences
from tests.oracle.drive import POLICIES, policy_named, run
from tests.oracle.show import show

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
    if given.show:
        for case in read_cases(given.paths):
            if case["scenario"]["name"] == given.show:
                print("\n".join(show(case, result_of(case, given.policy))))
                return 0
        print(f"no case {given.show}", file=sys.stderr)
        return 1
    total: Counter[str] = Counter()
    agree: Counter[str] = Counter()
    wrong: dict[str, list[str]] = {}
    differ: list[str] = []
    for case in read_cases(given.paths):
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
    for name, found in wrong.items():
        print(f"{name}: {found[0]}", file=sys.stderr)
    if given.json:
        counts = {family: {"agree": agree[family], "total": total[family]} for family in sorted(total)}
        given.json.write_text(json.dumps({"families": counts, "differ": differ, "wrong": wrong}, indent=1) + "\n")
    return 1 if wrong or not total else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
