"""``cohort-extender``: the service."""

from importlib.metadata import version as version_of
from typing import Annotated

import typer

from extender.model.errors import UserError

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Shares GPUs and CPUs by quota on Kubernetes.")


@app.command()
def serve(
    config: Annotated[str | None, typer.Option(help="Configuration file; without it the defaults hold.")] = None,
    kubeconfig: Annotated[str, typer.Option(help="Outside of a cluster: whom to talk to.")] = "",
) -> None:
    """Run the service until it is told to stop."""
    from extender.app import run

    try:
        run(config, kubeconfig)
    except UserError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(2) from error


@app.command()
def version() -> None:
    """Print the version."""
    typer.echo(version_of("cohort-extender"))


def main() -> None:
    """The console script ``cohort-extender``."""
    app(prog_name="cohort-extender")


if __name__ == "__main__":
    main()
