"""Where the API server is and who we are to it: the service account of a pod, or a kubeconfig.

Both common kinds are read here, so that the service does not import a generated client (half a second, 60 MB) for
four files. A kubeconfig whose user needs a plug-in (exec, OIDC) is handed to kubernetes_asyncio, loaded on demand.
"""

import base64
import binascii
import os
import ssl
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from extender.model.errors import UserError, no_passphrase

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_PLUGINS: Final = ("exec", "auth-provider")
NAMES_TOLD_MAX: Final = 8
PLUGIN_TEXT_MAX: Final = 200

TokenLoader = Callable[[], Awaitable[str]]
"""Asks a plug-in for a fresh token."""


class ClusterConfig(msgspec.Struct, frozen=True):
    """The address of an API server and the credentials to use there.

    ``token_file`` is read again whenever it changes; ``token`` is fixed. ``token_loader`` asks a plug-in, at the start
    and after a 401. Certificates are PEM bytes; ``ca_file`` is followed when it changes.
    """

    server: str
    namespace: str = "default"
    ca: bytes = b""
    ca_file: str = ""
    insecure: bool = False
    server_name: str = ""
    token: str = ""
    token_file: str = ""
    token_loader: TokenLoader | None = None
    certificate: bytes = b""
    key: bytes = b""

    def __repr__(self) -> str:
        return f"ClusterConfig({self.server})"  # credentials stay out of logs and tracebacks


def in_cluster(environ: Mapping[str, str], directory: Path = SERVICE_ACCOUNT) -> ClusterConfig:
    """The configuration of a pod's own service account. Raises: UserError, when this is no pod or it has no token."""
    host, port = environ.get("KUBERNETES_SERVICE_HOST", ""), environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        raise UserError("not inside a cluster: KUBERNETES_SERVICE_HOST is not set")
    if not (directory / "token").is_file():
        raise UserError(f"not inside a cluster: {directory / 'token'} does not exist (automountServiceAccountToken?)")
    namespace = directory / "namespace"
    return ClusterConfig(
        server=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
        namespace=namespace.read_text().strip() if namespace.is_file() else "default",
        ca_file=str(directory / "ca.crt"),
        token_file=str(directory / "token"),
    )


class _Reader:
    """Reads one kubeconfig; relative paths count from its folder."""

    def __init__(self, path: Path) -> None:
        import yaml  # only development reads kubeconfigs

        self.path = path
        try:
            self.document = yaml.safe_load(path.read_text())
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is not YAML"
            raise UserError(f"kubeconfig {path} cannot be read: {why}") from error

    def current(self) -> object:
        """The context that is in use."""
        name = self.document.get("current-context") if isinstance(self.document, dict) else None
        if not name:
            raise UserError(f"kubeconfig {self.path} names no current-context; {self._known('context')}")
        return name

    def named(self, section: str, name: object) -> dict[str, object]:
        for entry in self._entries(section):
            if entry.get("name") == name and isinstance(entry.get(section), dict):
                return dict(entry[section])
        raise UserError(f"kubeconfig {self.path} has no {section} {name!r}; {self._known(section)}")

    def _entries(self, section: str) -> list[dict[str, Any]]:
        entries = self.document.get(f"{section}s") if isinstance(self.document, dict) else None
        return [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []

    def _known(self, section: str) -> str:
        """What could have been meant, and how to say so."""
        names = [str(entry.get("name")) for entry in self._entries(section)][:NAMES_TOLD_MAX]
        way = " (choose with --context)" if section == "context" and names else ""
        return f"it has {', '.join(names) or f'no {section}s'}{way}"

    def file(self, value: object) -> str:
        return str(self.path.parent / str(value)) if value else ""

    def data(self, holder: dict[str, object], key: str) -> bytes:
        """What *key* holds: given in place (base64), or in a file."""
        try:
            if holder.get(f"{key}-data"):
                return base64.b64decode(str(holder[f"{key}-data"]), validate=True)
            return Path(self.file(holder[key])).read_bytes() if holder.get(key) else b""
        except (OSError, binascii.Error) as error:
            why = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) else "it is not base64"
            raise UserError(f"kubeconfig {self.path}: {key} cannot be read: {why}") from error


def from_kubeconfig(path: Path, context: str = "") -> ClusterConfig:
    """The configuration of *context*, else of the current one. Raises: UserError, saying what the kubeconfig lacks."""
    reader = _Reader(path)
    current = context or reader.current()
    chosen = reader.named("context", current)
    cluster, user = reader.named("cluster", chosen.get("cluster")), reader.named("user", chosen.get("user"))
    if not str(cluster.get("server") or "").startswith(("https://", "http://")):
        raise UserError(f"kubeconfig {path}: cluster {chosen.get('cluster')!r} has no server that begins with https://")
    server, token = str(cluster["server"]).rstrip("/"), str(user.get("token") or "").strip()
    if not _is_address(server):
        raise UserError(f"kubeconfig {path}: the server of cluster {chosen.get('cluster')!r} is no address: {server}")
    if not is_token(token):
        raise UserError(f"kubeconfig {path}: the token of user {chosen.get('user')!r} has characters that no token has")
    plugin = any(kind in user for kind in _PLUGINS)
    return ClusterConfig(
        server=server,
        namespace=str(chosen.get("namespace") or "default"),
        ca=reader.data(cluster, "certificate-authority"),
        insecure=bool(cluster.get("insecure-skip-tls-verify")),
        server_name=str(cluster.get("tls-server-name") or ""),
        token=token,
        token_file=reader.file(user.get("tokenFile")),
        token_loader=_plugin_loader(path, str(current)) if plugin else None,
        certificate=reader.data(user, "client-certificate"),
        key=reader.data(user, "client-key"),
    )


def is_token(text: str) -> bool:
    """Whether *text* can stand in a header; so can the empty text, which is no token."""
    return text.isascii() and text.isprintable() and " " not in text


def _is_address(server: str) -> bool:
    try:
        parts = urlsplit(server)
        return bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port or an IPv6 address that is none
        return False


def _plugin_loader(path: Path, context: str) -> TokenLoader:
    async def load() -> str:
        from kubernetes_asyncio.client import Configuration
        from kubernetes_asyncio.config import ConfigException, load_kube_config

        configuration = Configuration()
        try:
            await load_kube_config(config_file=str(path), context=context, client_configuration=configuration)
        except (ConfigException, OSError) as error:
            why = str(error).strip().splitlines() or [type(error).__name__]
            raise UserError(
                f"kubeconfig {path}: the plug-in of context {context!r} gave no token ({why[0][:PLUGIN_TEXT_MAX]}); "
                "is it installed, are you logged in?"
            ) from error
        bearer = configuration.api_key.get("BearerToken", "")
        return str(bearer).removeprefix("Bearer ").strip()

    return load


def find_config(environ: Mapping[str, str], kubeconfig: str = "", context: str = "") -> ClusterConfig:
    """The configuration to use: *kubeconfig* if given, else the pod's, else ``KUBECONFIG`` or ``~/.kube/config``.

    A *context* is one of a kubeconfig, so the pod's account is not asked then. Of several files in ``KUBECONFIG`` the
    first that exists is read. Raises: UserError, saying where was looked and how to name another place.
    """
    if kubeconfig:
        return from_kubeconfig(Path(kubeconfig), context)
    try:
        if not context:
            return in_cluster(environ)
        outside = "a context was named"
    except UserError as error:
        outside = str(error)
    named = [Path(part) for part in environ.get("KUBECONFIG", "").split(os.pathsep) if part]
    files = named or [Path.home() / ".kube" / "config"]
    for file in files:
        if file.exists():
            return from_kubeconfig(file, context)
    looked = ", ".join(str(file) for file in files)
    variable = f"KUBECONFIG names {looked}" if named else f"KUBECONFIG is not set and there is no {looked}"
    absent = ", which does not exist" if named else ""
    raise UserError(
        f"no cluster to talk to: {outside}; {variable}{absent}. Give --kubeconfig FILE, or export KUBECONFIG=FILE"
    )


def tls_context(config: ClusterConfig) -> ssl.SSLContext | None:
    """The TLS settings for *config*, None for a plain http server.

    Chain and host name are checked. The strict X.509 rules that Python 3.13 switched on are not: cluster CAs without
    key identifiers are common.
    """
    if not config.server.startswith("https://"):
        return None
    context = ssl.create_default_context()
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    try:
        if config.ca:
            context.load_verify_locations(cadata=config.ca.decode("ascii"))
        if config.ca_file:
            context.load_verify_locations(cafile=config.ca_file)
        if config.certificate:
            _load_client_certificate(context, config)
    except (OSError, ssl.SSLError, UnicodeDecodeError) as error:
        raise UserError(f"certificates for {config.server} cannot be used: {type(error).__name__}") from error
    if config.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _load_client_certificate(context: ssl.SSLContext, config: ClusterConfig) -> None:
    # ssl reads key pairs from files only; this one is readable by us alone and gone at once.
    with tempfile.NamedTemporaryFile() as pair:
        pair.write(config.certificate + b"\n" + config.key)
        pair.flush()
        context.load_cert_chain(pair.name, password=no_passphrase)
