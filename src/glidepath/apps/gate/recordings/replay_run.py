"""Runs a command once more against a recording: in its sandbox on a copy of the workspace, or in its folder."""

from __future__ import annotations

import contextlib
import secrets
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glidepath._wire import Record, Value
from glidepath.apps.gate.child import ForegroundChild
from glidepath.apps.gate.launchers import find_launcher, prepare
from glidepath.apps.gate.local_gate import Gate
from glidepath.apps.gate.recordings.isolation import (
    Isolation,
    check_inside,
    choose_environment,
    copy_home,
    copy_workspace,
    explain_own_sandbox,
    find_programs,
)
from glidepath.apps.gate.recordings.matching import RecordedScript
from glidepath.apps.gate.recordings.player import Played, Player
from glidepath.apps.gate.recordings.volatile import Place
from glidepath.apps.gate.run_behind import keeping_errors, run_child
from glidepath.apps.gate.run_plan import make_aims
from glidepath.apps.gate.upstreams import VENDORS, Upstream
from glidepath.values import ConfigurationError, pluralize

if TYPE_CHECKING:
    from glidepath.agent import Limits
    from glidepath.apps.gate.recordings.tape_reader import RecordedTape
    from glidepath.spi import SessionStore

_NOWHERE = "http://127.0.0.1:9"


class ReplayTerms(Value, frozen=True, kw_only=True):
    """How a recording is replayed."""

    workspace: Path
    """The folder that is copied, as it was when the recording began; without a sandbox, the folder to run in."""
    is_isolated: bool = True
    keep: Path | None = None
    """Where the copy is left, to be looked at."""
    read: tuple[str, ...] = ()
    """What else the command can read in its sandbox."""
    timing: bool = False
    turns: int | None = None
    """Turns of the main agent that are repeated; what follows is new. None repeats all, and nothing is new."""


class ReplayFlight(Record, kw_only=True):
    """The result: the command's exit code, what was replayed, and what the live part used."""

    code: int
    played: Played
    report: dict[str, Any]
    name: str
    hint: str = ""
    """Another reason why the run may differ."""


def replay_command(
    command: Sequence[str],
    tape: RecordedTape,
    terms: ReplayTerms,
    *,
    environ: Mapping[str, str],
    limits: Limits | None = None,
    upstreams: Sequence[Upstream] = (),
    store: SessionStore | None = None,
) -> ReplayFlight:
    """Run the command; raises `CannotStart`, `ConfigurationError` and `SandboxError` before anything runs.

    With `turns` what follows them goes to the `upstreams`, within `limits`, as a session in the `store`.
    """
    folder, home = _choose_places(tape, terms, environ)
    script = RecordedScript(tape, live=Place(folder=folder, home=home), turns=terms.turns)
    _check_turns(script, terms.turns)
    player = Player(script, timing=terms.timing)
    found = find_launcher(command)
    agent = "" if found is None else found[0].agent
    with contextlib.ExitStack() as stack:
        folders = tempfile.TemporaryDirectory(prefix="glidepath-replay-", ignore_cleanup_errors=True)
        area = Path(stack.enter_context(folders))
        gate = Gate(
            limits,
            upstreams or [Upstream(name, name, _NOWHERE) for name in VENDORS],
            line=f"replay-{secrets.token_hex(4)}",
            environ=environ,
            program=agent,
            store=store,
            tap=player,
        )
        stack.callback(gate.socket.close)
        overlays = area / "overlays"
        overlays.mkdir(mode=0o700)
        made = prepare(command, environ, make_aims(gate.upstreams, gate.url, gate.secret_url, gate.key), overlays)
        if terms.is_isolated:
            place = _prepare_place(command, tape, terms, area, environ)
            port = gate.socket.getsockname()[1]
            boxed = stack.enter_context(place.enter(made.command, choose_environment(environ, made.environ), port))
            child = ForegroundChild(boxed.words, boxed.env, cwd=boxed.cwd, pass_fds=boxed.pass_fds)
        else:
            child = ForegroundChild(made.command, made.environ, cwd=str(terms.workspace))
        stack.enter_context(keeping_errors())
        code = run_child(child, gate, store)
        hint = explain_own_sandbox(agent, command) if terms.is_isolated else ""
        return ReplayFlight(code=code, played=player.report(), report=gate.report(), name=made.name, hint=hint)


def _choose_places(tape: RecordedTape, terms: ReplayTerms, environ: Mapping[str, str]) -> tuple[str, str]:
    """Folder and home as the command sees them: inside a sandbox those of the recording."""
    folder, home = str(terms.workspace), environ.get("HOME", "")
    if not terms.is_isolated:
        return folder, home
    folder, home = tape.head.folder or folder, tape.head.home or home or "/home/replay"
    check_inside(folder, home)
    return folder, home


def _check_turns(script: RecordedScript, turns: int | None) -> None:
    there = script.count_turns()
    if turns is not None and not 1 <= turns <= there:
        raise ConfigurationError(
            f"--from-turn {turns}: the recording has {pluralize(there, 'turn')} of its main agent; "
            f"name one from 1 to {there}"
        )


def _prepare_place(
    command: Sequence[str], tape: RecordedTape, terms: ReplayTerms, area: Path, environ: Mapping[str, str]
) -> Isolation:
    folder, home = _choose_places(tape, terms, environ)
    copy = area / "workspace" if terms.keep is None else terms.keep
    if copy.exists():
        raise ConfigurationError(f"--keep {copy}: something is there already; name a folder that is not there yet")
    copy_workspace(terms.workspace, copy)
    mine = Path(environ.get("HOME") or Path.home())
    copy_home(mine, area / "home", tape.head.program, str(terms.workspace))
    return Isolation(
        copy=copy,
        folder=folder,
        home_copy=area / "home",
        home=home,
        read=(*find_programs(command, environ), str(area / "overlays"), *terms.read),
    )
