"""The `glidepath` command: parses the arguments, runs one command and returns its exit code.

The commands are listed in `glidepath.apps.cli.parser`, or by `glidepath --help`. Nothing heavy is imported before a
command needs it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from glidepath._lazy import lazy_attributes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from glidepath.apps.cli.cli_context import CliContext

__all__ = ["main"]


def main(argv: Sequence[str] | None = None, world: CliContext | None = None) -> int:
    """Run one command and return its exit code; raises only the argument parser's SystemExit."""
    from glidepath.apps.cli.cli_context import CliContext, ScreenClosed

    here = CliContext.real() if world is None else world
    try:
        return _dispatch(here.arguments if argv is None else argv, here)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        here.close_quietly()
        return 141
    except ScreenClosed as error:
        here.close_quietly()
        here.complain(str(error))
        return 1
    except OSError as error:
        here.close_quietly()
        where = f" ({error.filename})" if error.filename else ""
        here.complain(f"{_describe_os_error(error)}: {error.strerror or error}{where}")
        return 1


def _describe_os_error(error: OSError) -> str:
    """A full disk or a dead terminal concerns the output: only that is written without asking."""
    return "a file cannot be used" if error.filename else "the output cannot be written"


def _dispatch(argv: Sequence[str], world: CliContext) -> int:
    from glidepath.apps.cli.parser import parse
    from glidepath.values import ConfigurationError, StoreError

    try:
        options, execute = parse(argv, world)
        code: int = execute(options, world)
        if not world.stdout.closed:  # as it is where a protocol was spoken on it, and the other side has gone
            world.write("")
    except (ConfigurationError, StoreError) as error:
        world.complain(str(error))
        return 2
    return code


# What other packages use, imported when it is first asked for.
if TYPE_CHECKING:
    from glidepath.apps.cli.approval_dialog import ApprovalAsked as ApprovalAsked, format_question as format_question
    from glidepath.apps.cli.attachments import ASIDE as ASIDE
    from glidepath.apps.cli.cli_context import CliContext as CliContext
    from glidepath.apps.cli.exits import exit_code as exit_code
    from glidepath.apps.cli.layers import LoadedSettings as LoadedSettings
    from glidepath.apps.cli.markup import Blocks as Blocks, render_block as render_block
    from glidepath.apps.cli.notes import suggest_next_commands as suggest_next_commands
    from glidepath.apps.cli.parser import make_parser as make_parser
    from glidepath.apps.cli.servers import prompt_of as prompt_of
    from glidepath.apps.cli.team_board import TeamBoard as TeamBoard

if not TYPE_CHECKING:
    __getattr__ = lazy_attributes(
        __name__,
        approval_dialog=("ApprovalAsked", "format_question"),
        attachments=("ASIDE",),
        cli_context=("CliContext",),
        exits=("exit_code",),
        layers=("LoadedSettings",),
        markup=("Blocks", "render_block"),
        notes=("suggest_next_commands",),
        parser=("make_parser",),
        servers=("prompt_of",),
        team_board=("TeamBoard",),
    )
