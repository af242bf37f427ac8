"""The configuration: one YAML file in the style of Kueue's, read and checked once, then frozen.

An unknown key or a wrong value is an error that names the key; nothing is guessed. Every field has a default, so an
empty file starts a working service (with classical preemption, as in Kueue when ``fairSharing`` is absent).
"""

import ipaddress
import re
from pathlib import Path

import msgspec
import yaml

from extender.jobs.kinds import KindRow, kinds_of
from extender.kube import rules
from extender.kube.documents import read_documents
from extender.model.errors import UserError
from extender.model.jobs import Kind
from extender.model.policy import FairSharingStrategy, Policy
from extender.pods.timers import ReadyTimes, Times

FILE_BYTES_MAX = 1 << 20
BACKOFF_S_MAX = 86_400
API_VERSION = "config.cohort-extender.io/v1alpha1"
KIND = "Configuration"
_DURATION = re.compile(r"([0-9]{1,6}(?:\.[0-9]{1,3})?)(ms|s|m|h)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
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
    secret_name: str = "cohort-extender-certs"  # noqa: S105 (the name of a Secret, not one)
    names: tuple[str, ...] = ()
    client_ca_file: str = msgspec.field(default="", name="clientCAFile")
    inject_ca_bundle: bool = True


class LeaderElection(_Section, frozen=True):
    """The Lease that one replica holds; times as durations (``15s``, ``500ms``)."""

    lease_name: str = "cohort-extender"
    lease_duration: str = "15s"
    renew_deadline: str = "10s"
    retry_period: str = "2s"


class Jobs(_Section, frozen=True):
    """Which kinds can be queued beside batch/v1 Job: shipped ones by name, and rows for others (docs/jobs.md)."""

    integrations: tuple[str, ...] = ()
    kinds: tuple[KindRow, ...] = ()


class RequeuingStrategy(_Section, frozen=True):
    """How what timed out is put back: after base, 2 · base, 4 · base … seconds, at most max; limit None: for ever.

    ``timestamp`` is what a Job's place in line goes by afterwards: ``Eviction`` or ``Creation``.
    """

    timestamp: str = "Eviction"
    backoff_base_seconds: int = 60
    backoff_max_seconds: int = 3600
    backoff_limit_count: int | None = None


class WaitForPodsReady(_Section, frozen=True):
    """Turns on that admitted workloads have to become ready (ADR 0051).

    ``recovery_timeout`` empty: as ``timeout``; zero: who was ready once may be unready for ever.
    """

    timeout: str = "30m"
    recovery_timeout: str = ""
    requeuing_strategy: RequeuingStrategy = RequeuingStrategy()


class Settings(_Section, frozen=True):
    """Everything that can be set."""

    api_version: str = API_VERSION
    kind: str = KIND
    fair_sharing: FairSharing | None = None
    log_level: str = "info"
    log_format: str = "json"
    bind_address: str = "0.0.0.0"  # noqa: S104 (a pod serves its Service on every address it has)
    ports: Ports = Ports()
    tls: Tls = Tls()
    leader_election: LeaderElection = LeaderElection()
    service_account: str = "cohort-extender"
    drain: str = "15s"
    jobs: Jobs = Jobs()
    pod_group_timeout: str = "5m"
    wait_for_pods_ready: WaitForPodsReady | None = None

    def policy(self) -> Policy:
        """The engine's policy that these settings ask for."""
        return Policy(fair_sharing=self.fair_sharing.preemption_strategies if self.fair_sharing else ())

    def times(self) -> Times:
        """What is timed. Raises: UserError, when a duration cannot be read."""
        waits, ready = self.wait_for_pods_ready, None
        if waits is not None:
            again = waits.requeuing_strategy
            ready = ReadyTimes(
                timeout_ms=_milliseconds(waits.timeout),
                recovery_ms=_milliseconds(waits.recovery_timeout or waits.timeout),
                backoff_base_ms=again.backoff_base_seconds * 1000,
                backoff_max_ms=again.backoff_max_seconds * 1000,
                limit=again.backoff_limit_count,
                keeps_place=again.timestamp == "Creation",
            )
        return Times(group_ms=_milliseconds(self.pod_group_timeout), ready=ready)

    def kinds(self) -> tuple[Kind, ...]:
        """The kinds that can be queued. Raises: UserError, naming the field of a row that is wrong."""
        return kinds_of(self.jobs.integrations, self.jobs.kinds)


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
        documents = read_documents(file.read_bytes())
        if len(documents) > 1:
            raise UserError(f"{path}: holds {len(documents)} documents; the configuration is one")
        settings = msgspec.convert(documents[0], Settings) if documents else Settings()
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from error
    except (msgspec.ValidationError, yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: {' '.join(str(error).split())}") from error
    _check(settings, path)
    return settings


def seconds(duration: str) -> float:
    """The length of a duration such as ``15s``, ``1.5m`` or ``500ms``. Raises: UserError."""
    match = _DURATION.fullmatch(duration)
    if match is None:
        raise UserError(f"{duration[:20]!r} is not a duration; write for example 15s or 500ms")
    return float(match[1]) * _SECONDS[match[2]]


def _milliseconds(duration: str) -> int:
    return round(seconds(duration) * 1000)


def _check_times(settings: Settings) -> None:
    """Raises: UserError, naming the key."""
    try:
        seconds(settings.pod_group_timeout)
    except UserError as error:
        raise error.inside("podGroupTimeout") from error
    waits = settings.wait_for_pods_ready
    if waits is None:
        return
    for name, duration in (("timeout", waits.timeout), ("recoveryTimeout", waits.recovery_timeout or waits.timeout)):
        try:
            length_s = seconds(duration)
        except UserError as error:
            raise error.inside(f"waitForPodsReady.{name}") from error
        if name == "timeout" and not length_s:
            raise UserError("waitForPodsReady.timeout must be above 0; leave the section out to turn it off")
    again = waits.requeuing_strategy
    if not 0 <= again.backoff_base_seconds <= again.backoff_max_seconds <= BACKOFF_S_MAX:
        raise UserError(
            f"waitForPodsReady.requeuingStrategy needs 0 <= backoffBaseSeconds <= backoffMaxSeconds <= {BACKOFF_S_MAX}"
        )
    if again.timestamp not in ("Eviction", "Creation"):
        raise UserError("waitForPodsReady.requeuingStrategy.timestamp must be Eviction or Creation")
    if again.backoff_limit_count is not None and again.backoff_limit_count < 0:
        raise UserError("waitForPodsReady.requeuingStrategy.backoffLimitCount must be 0 or more")


def _is_ip_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _check(settings: Settings, path: str) -> None:
    if (settings.api_version, settings.kind) != (API_VERSION, KIND):
        raise UserError(f"{path}: must be kind {KIND} of {API_VERSION}")
    if settings.fair_sharing and settings.fair_sharing.preemption_strategies not in _ORDERS:
        allowed = " or ".join("[" + ", ".join(order) + "]" for order in _ORDERS)
        raise UserError(f"{path}: fairSharing.preemptionStrategies must be {allowed}")
    if settings.log_level not in ("debug", "info", "warning", "error"):
        raise UserError(f"{path}: logLevel must be debug, info, warning or error")
    if settings.log_format not in ("json", "console"):
        raise UserError(f"{path}: logFormat must be json or console")
    for name, port in msgspec.structs.asdict(settings.ports).items():
        if not 0 <= port <= 65535:
            raise UserError(f"{path}: ports.{name} must be from 0 to 65535")
    for name in settings.tls.names:
        if not (rules.is_name(name.removeprefix("*.").lower()) or _is_ip_address(name)):
            raise UserError(f"{path}: tls.names: {name!r} is no DNS name and no IP address")
    try:
        settings.kinds()
        _check_times(settings)
        seconds(settings.drain)
        election = settings.leader_election
        duration, deadline, retry = map(
            seconds, (election.lease_duration, election.renew_deadline, election.retry_period)
        )
    except UserError as error:
        raise error.inside(path) from error
    if not 0 < retry < deadline < duration:
        raise UserError(f"{path}: leaderElection needs 0 < retryPeriod < renewDeadline < leaseDuration")
    if int(duration) - deadline < 1:
        raise UserError(
            f"{path}: leaderElection.leaseDuration must be 1s longer than renewDeadline: a write takes time"
        )
