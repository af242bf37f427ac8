"""Writes ``differences.txt`` anew: ``python -m tests.oracle.differences PATH…``.

A case is put down to every switch that alone makes it differ from the record; if only several together do, to those
without which it would agree.
"""

import sys
from pathlib import Path

import msgspec

from extender.model.policy import Policy
from tests.oracle.cases import Json
from tests.oracle.compare import differences
from tests.oracle.drive import policy_named, run
from tests.oracle.files import read_cases

FILE = Path(__file__).with_name("differences.txt")
SWITCHES = {
    "victims_hold_room": "0010",
    "hold_for_preemptor": "0011",
    "fit_means_all": "0012",
    "fair_fill_back": "0013",
}
HEAD = """\
# Cases in which the shipped default decides otherwise than the reference, on purpose: name and ADRs (docs/adr).
# Written by python -m tests.oracle.differences; python -m tests.oracle --policy default checks it in both directions.
"""


def _differs(case: Json, policy: Policy) -> bool:
    return bool(differences(case["result"], run(case["scenario"], policy)))


def reasons(case: Json) -> list[str]:
    """The ADRs because of which the default differs on *case*; empty if it agrees."""
    fair = case["scenario"]["fairSharing"]
    default = policy_named("default", fair_sharing=fair)
    if not _differs(case, default):
        return []
    reference = policy_named("reference", fair_sharing=fair)
    alone = [
        adr for switch, adr in SWITCHES.items() if _differs(case, msgspec.structs.replace(reference, **{switch: True}))
    ]
    without = [
        adr
        for switch, adr in SWITCHES.items()
        if not _differs(case, msgspec.structs.replace(default, **{switch: False}))
    ]
    return alone or without or list(SWITCHES.values())


def main(paths: list[Path]) -> int:
    """Write the file."""
    lines = [f"{case['scenario']['name']} {' '.join(found)}" for case in read_cases(paths) if (found := reasons(case))]
    FILE.write_text(HEAD + "\n".join(sorted(lines)) + "\n")
    print(f"{len(lines)} cases differ")
    return 0


if __name__ == "__main__":
    sys.exit(main([Path(path) for path in sys.argv[1:]]))
