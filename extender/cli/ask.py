"""Questions to the API server with a person's own rights, and the answers and errors as that person needs them.

An error says what was asked for, of whom, and the way out: another kubeconfig, a role to be bound, manifests to apply.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeVar

import orjson
import typer
from rich.console import Console

from extender.kube.client import ApiClient
from extender.kube.config import find_config
from extender.kube.resources import KUEUE_GROUP, kueue_version
from extender.model.errors import ExtenderError, Gone, UserError

Object = dict[str, Any]
T = TypeVar("T")

PIPE_WIDTH: Final = 10_000
"""Columns of an output that is no terminal: what reads it wants lines whole."""
QUOTA_ROLE: Final = (
    "an administrator grants it with: kubectl create clusterrolebinding NAME "
    "--clusterrole=cohort-extender-viewer --user=USER"
)
POD_ROLE: Final = (
    "an administrator grants it with: kubectl create rolebinding NAME --clusterrole=view --user=USER -n NAMESPACE"
)
NO_CRDS: Final = (
    "the cluster has no quota objects (kueue.x-k8s.io): apply manifests/default, or manifests/crd alone, "
    "or choose another --context"
)


def console(*, stderr: bool = False) -> Console:
    """Where to print: as wide as the terminal, and without bounds into a pipe or a file."""
    made = Console(stderr=stderr, highlight=False)
    return made if made.is_terminal else Console(stderr=stderr, highlight=False, width=PIPE_WIDTH)


def fail(error: ExtenderError) -> typer.Exit:
    """Print *error* as one line; what to raise, with exit code 1."""
    console(stderr=True).print(f"error: {error}", style="red", markup=False, soft_wrap=True)
    return typer.Exit(1)


def ask(question: Callable[[ApiClient], Awaitable[T]], *, kubeconfig: str = "", context: str = "") -> T:
    """The answer of the API server to *question*. Raises: ExtenderError."""

    async def run() -> T:
        client = ApiClient(find_config(os.environ, kubeconfig, context), user_agent="kubectl-cohort")
        try:
            return await question(client)
        finally:
            await client.close()

    return asyncio.run(run())


async def fetch(
    client: ApiClient, path: str, *, absent: str, role: str = POD_ROLE, params: Mapping[str, str] | None = None
) -> Object:
    """The object or list at *path*. *absent*: what to say when there is none; *role*: who may read it.

    Raises: UserError with the way out; Unreachable, which names the server.
    """
    try:
        found: Object = orjson.loads(await client.get(path, params=params))
    except Gone as error:
        raise UserError(absent, status=error.status) from error
    except UserError as error:
        said = str(error).partition(f": {error.status} ")[2]
        if error.status == 403:
            raise UserError(f"not allowed: {said}; {role}", status=403) from error
        if error.status == 401:
            raise UserError(
                "the API server does not accept these credentials (401): log in again, or choose another --context",
                status=401,
            ) from error
        raise
    return found


async def quota_objects(client: ApiClient, *kinds: str) -> list[list[Object]]:
    """All objects of each of these kinds of Kueue's API, in the newest version that is served."""
    base = f"/apis/{KUEUE_GROUP}/{await kueue_version(client)}"
    lists = [await fetch(client, f"{base}/{kind}", absent=NO_CRDS, role=QUOTA_ROLE) for kind in kinds]
    return [items(one) for one in lists]


def items(found: Object) -> list[Object]:
    """The objects of a list; an empty one may be null."""
    return list(found.get("items") or ())
