"""A command that only has subcommands: alone, it says which."""

import typer


def command_group(name: str, help: str) -> typer.Typer:
    app = typer.Typer(name=name, help=help)

    @app.callback(invoke_without_command=True, help=help)
    def show_help(context: typer.Context) -> None:
        if context.invoked_subcommand is None:
            typer.echo(context.get_help())

    return app
