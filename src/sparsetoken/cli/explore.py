"""`sparsetoken explore`: a page on this machine to play with the theory."""

from pathlib import Path

import click

from sparsetoken.cli.options import import_option
from sparsetoken.cli.output import (
    Refusal,
    check_writable,
    force_option,
    is_our_page,
    refuse_unread_options,
    tell_written,
)
from sparsetoken.validation import ParameterError

__all__ = ["explore"]


@click.command(short_help="Open a page with all of the theory behind sliders.")
@click.option("--port", type=int, help="Port to listen on; any free one if the usual is taken.")
@click.option("--no-browser", is_flag=True, help="Do not open a browser.")
@click.option("--state", default="", help="What to show first: a link that the page has copied.")
@click.option(
    "--export",
    type=click.Path(path_type=Path),
    help="Write a self-contained page of the state instead, for slides and papers.",
)
@import_option
@force_option
def explore(
    port: int | None, no_browser: bool, state: str, export: Path | None, force: bool
) -> None:
    """Move a slider, see the exact answer: a page with all of the theory.

    The page is served to this machine alone.
    """
    from sparsetoken.explorer.state import State

    shown = State.from_address(state)
    if export is not None:
        refuse_unread_options(("port", "no_browser"), "--export writes a page and serves none")
    if port is not None and not 1 <= port <= 65535:
        raise ParameterError("port", port, "an integer from 1 to 65535")
    try:
        import plotly  # noqa: F401
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise Refusal(
            f"the explorer needs the package {error.name}, which the extra 'explorer' brings: in a "
            "clone, make explore, or pip install '.[explorer]'"
        ) from None
    if export is not None:
        from sparsetoken.explorer.snapshot import write_snapshot

        check_writable(export, is_our_page, force=force)
        write_snapshot(shown, export)
        tell_written(export)
        return
    from sparsetoken.explorer.running import serve

    serve(port, open_browser=not no_browser, address=shown.to_address() if state else "")
