"""Write kubeconfig files: one cluster, one user, one context."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import yaml

from tests.rig.pki import Pair


def with_certificate(path: Path, *, server: str, ca: Path, user: str, pair: Pair) -> Path:
    """A kubeconfig for *user* with everything inside the file."""
    credentials = {
        "client-certificate-data": _data(pair.cert),
        "client-key-data": _data(pair.key),
    }
    return _write(path, server=server, ca=ca, user=user, credentials=credentials)


def with_token_file(path: Path, *, server: str, ca: Path, user: str, token: Path) -> Path:
    """A kubeconfig whose token is read from a file, which may be replaced while it is in use."""
    return _write(path, server=server, ca=ca, user=user, credentials={"tokenFile": str(token)})


def _write(path: Path, *, server: str, ca: Path, user: str, credentials: dict[str, str]) -> Path:
    content: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "rig", "cluster": {"server": server, "certificate-authority-data": _data(ca)}}],
        "users": [{"name": user, "user": credentials}],
        "contexts": [{"name": "rig", "context": {"cluster": "rig", "user": user}}],
        "current-context": "rig",
    }
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    return path


def _data(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()
