"""``kubectl cohort``: what a person may ask about quota with their own rights, straight from the API server."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, TypeVar

import orjson
import typer
from rich.console import Console
from rich.text import Text

from extender.cli import jobs
from extender.cli.tree import build, draw
from extender.kube.client import ApiClient
from extender.kube.config import find_config
from extender.model.errors import ExtenderError
from extender.model.pods import ADMISSION_ANNOTATION, ADMITTED_CONDITION, GATE, QUEUE_NAME

QUOTA = "/apis/kueue.x-k8s.io/v1beta2"
T = TypeVar("T")

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Ask about cohorts, queues and waiting pods.")
explain = typer.Typer(no_args_is_help=True, help="Say why something waits.")
app.add_typer(explain, name="explain")

Kubeconfig = Annotated[str, typer.Option(help="Path of the kubeconfig; default: as kubectl finds it.")]


def _ask(kubeconfig: str, question: Callable[[ApiClient], Awaitable[T]]) -> T:
    """Ask the API server; an error becomes one line and exit code 1."""

    async def run() -> T:
        client = ApiClient(find_config(os.environ, kubeconfig), user_agent="kubectl-cohort")
        try:
            return await question(client)
        finally:
            await client.close()

    try:
        return asyncio.run(run())
    except ExtenderError as error:
        Console(stderr=True).print(f"error: {error}", style="red", markup=False)
        raise typer.Exit(1) from error


async def _items(client: ApiClient, kind: str) -> list[dict[str, Any]]:
    found = orjson.loads(await client.get(f"{QUOTA}/{kind}"))["items"]
    return list(found)


@app.command()
def tree(kubeconfig: Kubeconfig = "") -> None:
    """Draw cohorts and ClusterQueues with what is used of their quota."""

    async def both(client: ApiClient) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        return await _items(client, "cohorts"), await _items(client, "clusterqueues")

    Console().print(draw(build(*_ask(kubeconfig, both))))


@explain.command()
def pod(
    name: str,
    namespace: Annotated[str, typer.Option("-n", "--namespace", help="The pod's namespace.")] = "default",
    kubeconfig: Kubeconfig = "",
) -> None:
    """Say why a pod waits, or where it was admitted."""

    async def get(client: ApiClient) -> dict[str, Any]:
        found: dict[str, Any] = orjson.loads(await client.get(f"/api/v1/namespaces/{namespace}/pods/{name}"))
        return found

    Console().print(describe(_ask(kubeconfig, get)))


def describe(found: dict[str, Any]) -> Text:
    """One paragraph about a pod: its queue, whether it is admitted, and what it waits for."""
    metadata, spec, status = found["metadata"], found["spec"], found.get("status") or {}
    words = Text(f"{metadata['namespace']}/{metadata['name']}", style="bold")
    annotations = metadata.get("annotations") or {}
    queue = annotations.get(QUEUE_NAME) or (metadata.get("labels") or {}).get(QUEUE_NAME)
    words.append(f"  queue {queue or 'none'}\n")
    gates = [gate["name"] for gate in spec.get("schedulingGates") or ()]
    reasons = [
        f"{condition.get('reason')}: {condition.get('message')}"
        for condition in status.get("conditions") or ()
        if condition["type"] == ADMITTED_CONDITION and condition["status"] == "False"
    ]
    if ADMISSION_ANNOTATION in annotations:
        admission = orjson.loads(annotations[ADMISSION_ANNOTATION])
        words.append(f"admitted by ClusterQueue {admission.get('clusterQueue')}", style="green")
    elif reasons:
        words.append(reasons[0], style="yellow")
    elif GATE in gates:
        words.append("waits for admission; not looked at yet", style="yellow")
    else:
        words.append("does not wait for quota")
    others = [gate for gate in gates if gate != GATE]
    if others:
        words.append(f"\nother gates: {', '.join(others)}", style="yellow")
    return words


@explain.command()
def job(
    name: str,
    namespace: Annotated[str, typer.Option("-n", "--namespace", help="The Job's namespace.")] = "default",
    kubeconfig: Kubeconfig = "",
) -> None:
    """Say why a Job waits, or where it was admitted, and what its pods do."""

    async def get(client: ApiClient) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        found: dict[str, Any] = orjson.loads(await client.get(f"/apis/batch/v1/namespaces/{namespace}/jobs/{name}"))
        chosen = {"labelSelector": f"batch.kubernetes.io/controller-uid={found['metadata']['uid']}"}
        pods = await client.get(f"/api/v1/namespaces/{namespace}/pods", params=chosen)
        return found, list(orjson.loads(pods)["items"])

    Console().print(jobs.describe_job(*_ask(kubeconfig, get)))


@app.command()
def check(
    object_file: Annotated[str, typer.Option("--object", help="YAML of one object of the kind.")],
    configuration: Annotated[str, typer.Option("-f", "--file", help="Configuration file with the rows.")] = "",
) -> None:
    """Say what a row of the table of kinds finds in an object, before the service is told of it."""
    try:
        Console().print(jobs.check(configuration, object_file))
    except ExtenderError as error:
        Console(stderr=True).print(f"error: {error}", style="red", markup=False)
        raise typer.Exit(1) from error


def main() -> None:
    """The console script ``kubectl-cohort``."""
    app(prog_name="kubectl cohort")
