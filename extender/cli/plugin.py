"""``kubectl cohort``: what a person may ask about quota with their own rights, straight from the API server."""

from typing import Annotated

import typer

from extender.cli import pods
from extender.cli.ask import Object, ask, console, fail, fetch, items, quota_objects
from extender.cli.check import check as check_file
from extender.cli.jobs import describe_job
from extender.cli.tree import bar_width, build, draw
from extender.kube.client import ApiClient
from extender.model.errors import ExtenderError

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Ask about cohorts, queues and waiting pods.")
explain = typer.Typer(no_args_is_help=True, help="Say why something waits.")
app.add_typer(explain, name="explain")

Kubeconfig = Annotated[str, typer.Option(help="Path of the kubeconfig; default: KUBECONFIG, else ~/.kube/config.")]
Context = Annotated[str, typer.Option(help="Context of the kubeconfig; default: the current one.")]
NamespaceOption = Annotated[str, typer.Option("-n", "--namespace", help="The namespace; default: that of the context.")]


@app.command()
def tree(kubeconfig: Kubeconfig = "", context: Context = "") -> None:
    """Draw cohorts and ClusterQueues with what is used of their quota."""

    async def both(client: ApiClient) -> list[list[Object]]:
        return await quota_objects(client, "cohorts", "clusterqueues")

    try:
        cohorts, cluster_queues = ask(both, kubeconfig=kubeconfig, context=context)
    except ExtenderError as error:
        raise fail(error) from error
    paper = console()
    paper.print(draw(build(cohorts, cluster_queues), width=bar_width(paper.width)))


@explain.command()
def pod(name: str, namespace: NamespaceOption = "", kubeconfig: Kubeconfig = "", context: Context = "") -> None:
    """Say why a pod waits, or what it was given."""

    async def get(client: ApiClient) -> pods.Found:
        return await pods.find(client, name, namespace or client.namespace)

    try:
        found = ask(get, kubeconfig=kubeconfig, context=context)
    except ExtenderError as error:
        raise fail(error) from error
    console().print(pods.describe(found), soft_wrap=True)


@explain.command()
def job(name: str, namespace: NamespaceOption = "", kubeconfig: Kubeconfig = "", context: Context = "") -> None:
    """Say why a Job waits, or what it was given, and what its pods do."""

    async def get(client: ApiClient) -> tuple[Object, list[Object]]:
        space = namespace or client.namespace
        absent = f"no Job {name} in namespace {space}; is it another one? Name it with -n"
        found = await fetch(client, f"/apis/batch/v1/namespaces/{space}/jobs/{name}", absent=absent)
        chosen = {"labelSelector": f"batch.kubernetes.io/controller-uid={found['metadata']['uid']}"}
        its = await fetch(client, f"/api/v1/namespaces/{space}/pods", absent="no pods", params=chosen)
        return found, items(its)

    try:
        found, its = ask(get, kubeconfig=kubeconfig, context=context)
    except ExtenderError as error:
        raise fail(error) from error
    console().print(describe_job(found, its), soft_wrap=True)


@app.command()
def check(
    object_file: Annotated[str, typer.Option("--object", help="YAML of quota objects, or of an object of a kind.")],
    configuration: Annotated[str, typer.Option("-f", "--file", help="Configuration file with rows of kinds.")] = "",
) -> None:
    """Say what is wrong with quota objects in a file, or what is found in a Job or its like, before it is applied."""
    try:
        words, good = check_file(configuration, object_file)
    except ExtenderError as error:
        raise fail(error) from error
    console().print(words, soft_wrap=True)
    if not good:
        raise typer.Exit(1)


def main() -> None:
    """The console script ``kubectl-cohort``."""
    app(prog_name="kubectl cohort")
