"""The configuration: one YAML file in the style of Kueue's, read and checked once, then frozen.

An unknown key or a wrong value is an error that names the key; nothing is guessed. Every field has a default, so an
empty file starts a working service (with classical preemption, as in Kueue when ``fairSharing`` is absent).
"""

from pathlib import Path

import msgspec

from extender.model.errors import UserError
from extender.model.policy import FairSharingStrategy, Policy

FILE_BYTES_MAX = 1 << 20
_ORDERS = (
    (FairSharingStrategy.LESS_THAN_OR_EQUAL_TO_FINAL_SHARE, FairSharingStrategy.LESS_THAN_INITIAL_SHARE),
    (FairSharingStrategy.LESS_THAN_OR_EQUAL_TO_FINAL_SHARE,),
    (FairSharingStrategy.LESS_THAN_INITIAL_SHARE,),
)


class _Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """A part of the file: camelCase keys, none unknown."""


class FairSharing(_Section, frozen=True):
    """Turns fair sharing on. An empty list means the default one."""

    preemption_strategies: tuple[FairSharingStrategy, ...] = _ORDERS[0]


class Ports(_Section, frozen=True):
    """Where we listen; 0 is any free port (tests)."""

    extender: int = 9444
    webhook: int = 9443
    http: int = 8080


class Tls(_Section, frozen=True):
    """Where the certificate comes from.

    ``cert_dir`` empty: our own CA in Secret ``secret_name``; else ``tls.crt``, ``tls.key`` and ``ca.crt`` in that
    folder, kept by somebody else and read again when they change. ``client_ca_file``: only clients with a certificate
    of that CA may call the extender. ``names`` are further DNS names and IP addresses of the certificate.
    """

    cert_dir: str = ""
    secret_name: str = "cohort-extender-tls"  # noqa: S105 (the name of a Secret, not one)
    service_name: str = "cohort-extender"
    names: tuple[str, ...] = ()
    client_ca_file: str = ""
    inject_ca_bundle: bool = True


class LeaderElection(_Section, frozen=True):
    """The Lease that one replica holds; times in seconds."""

    lease_name: str = "cohort-extender"
    lease_duration_s: float = 15.0
    renew_deadline_s: float = 10.0
    retry_period_s: float = 2.0


class Settings(_Section, frozen=True):
    """Everything that can be set."""

    fair_sharing: FairSharing | None = None
    log_level: str = "info"
    log_format: str = "json"
    bind_address: str = "0.0.0.0"  # noqa: S104 (a pod serves its Service on every address it has)
    ports: Ports = Ports()
    tls: Tls = Tls()
    leader_election: LeaderElection = LeaderElection()
    service_account: str = "cohort-extender"
    drain_s: float = 5.0

    def policy(self) -> Policy:
        """The engine's policy that these settings ask for."""
        return Policy(fair_sharing=self.fair_sharing.preemption_strategies if self.fair_sharing else ())


def read_settings(path: str | None) -> Settings:
    """The settings in the file at *path*; the defaults, if None.

    Raises: UserError, naming the file and the key that is wrong.
    """
    if path is None:
        return Settings()
    file = Path(path)
    try:
        if file.stat().st_size > FILE_BYTES_MAX:
            raise UserError(f"{path}: larger than {FILE_BYTES_MAX} bytes")
        settings = msgspec.yaml.decode(file.read_bytes() or b"{}", type=Settings)
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from error
    except msgspec.MsgspecError as error:
        raise UserError(f"{path}: {error}") from error
    _check(settings, path)
    return settings


def _check(settings: Settings, path: str) -> None:
    if settings.fair_sharing and settings.fair_sharing.preemption_strategies not in _ORDERS:
        allowed = " or ".join("[" + ", ".join(order) + "]" for order in _ORDERS)
        raise UserError(f"{path}: fairSharing.preemptionStrategies must be {allowed}")
    if settings.log_level not in ("debug", "info", "warning", "error"):
        raise UserError(f"{path}: logLevel must be debug, info, warning or error")
    if settings.log_format not in ("json", "console"):
        raise UserError(f"{path}: logFormat must be json or console")
    election = settings.leader_election
    if not 0 < election.retry_period_s < election.renew_deadline_s < election.lease_duration_s:
        raise UserError(
            f"{path}: leaderElection needs 0 < retryPeriodS < renewDeadlineS < leaseDurationS, "
            f"has {election.retry_period_s}, {election.renew_deadline_s}, {election.lease_duration_s}"
        )
    for name, port in msgspec.structs.asdict(settings.ports).items():
        if not 0 <= port <= 65535:
            raise UserError(f"{path}: ports.{name} must be from 0 to 65535")
