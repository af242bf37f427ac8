"""``cohort-extender``: the service."""

from collections.abc import Iterator
from importlib.metadata import version as version_of
from typing import Annotated

import typer

from extender.model.errors import UserError

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,  # what is not an error of the user's belongs into logs as it is
    help="Shares GPUs and CPUs by quota on Kubernetes.",
)


@app.command()
def serve(
    config: Annotated[str | None, typer.Option(help="Configuration file; without it the defaults hold.")] = None,
    kubeconfig: Annotated[
        str, typer.Option(help="Whom to talk to; default: the pod's own cluster, else KUBECONFIG, else ~/.kube/config.")
    ] = "",
) -> None:
    """Run the service until it is told to stop."""
    from extender.app import run

    errors: list[UserError] = []
    try:
        run(config, kubeconfig)
    except* UserError as group:  # parts that run side by side may fail side by side
        errors += leaves(group)
    for error in errors:
        typer.echo(f"error: {error}", err=True)
    if errors:
        raise typer.Exit(2)


@app.command()
def version() -> None:
    """Print the version."""
    typer.echo(version_of("cohort-extender"))


def leaves(group: BaseExceptionGroup[UserError]) -> Iterator[UserError]:
    """The errors in *group*, however deep they are."""
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from leaves(error)
        else:
            yield error


def main() -> None:
    """The console script ``cohort-extender``."""
    app(prog_name="cohort-extender")


if __name__ == "__main__":
    main()
