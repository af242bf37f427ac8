"""Makes the certificates by hand: an authority, a serving pair, and a client pair for kube-scheduler.

    .venv/bin/python certs/make_certs.py --to ~/cohort-certs --name 10.96.0.40

Needed only where the service is not to make its own (README.md beside this file). Run again, it keeps the authority it
finds and makes the rest anew. Keys are readable by their owner alone and do not belong into a repository.
"""

import argparse
import sys
from datetime import UTC, datetime
from pathlib import Path

from extender.certs.authority import Pair, issue, make_authority, service_names

NAMESPACE = "cohort-system"
SERVICES = ("cohort-extender", "cohort-extender-webhook")
REPOSITORY = Path(__file__).resolve().parents[1]


def make(folder: Path, names: list[str], *, namespace: str, now: datetime) -> None:
    """Write ``ca``, ``tls`` and ``client`` pairs into *folder*. *names*: besides those of the Services."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    held = [folder / "ca.crt", folder / "ca.key"]
    if all(path.exists() for path in held):
        authority = Pair(*(path.read_bytes() for path in held))
    else:
        authority = make_authority(now)
        _write(folder, "ca", authority)
    services = [name for service in SERVICES for name in service_names(service, namespace)]
    _write(folder, "tls", issue(authority, [*services, *names], now))
    _write(folder, "client", issue(authority, ["kube-scheduler"], now, client=True))


def _write(folder: Path, name: str, pair: Pair) -> None:
    key = folder / f"{name}.key"
    key.touch(mode=0o600)
    key.write_bytes(pair.key)
    (folder / f"{name}.crt").write_bytes(pair.certificate)


def main(arguments: list[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--to", type=Path, required=True, help="folder for the files, outside of the repository")
    parser.add_argument("--namespace", default=NAMESPACE, help="namespace of the Services (default: %(default)s)")
    parser.add_argument("--name", action="append", default=[], help="another host name or IP address; may be repeated")
    options = parser.parse_args(arguments)
    folder = options.to.expanduser().resolve()
    if folder.is_relative_to(REPOSITORY):
        sys.stderr.write("keys do not belong into the repository: choose another folder\n")
        return 2
    make(folder, options.name, namespace=options.namespace, now=datetime.now(UTC))
    sys.stdout.write(f"wrote ca, tls and client (.crt, .key) to {folder}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
