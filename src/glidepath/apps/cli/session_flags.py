"""Shared by the commands on stored sessions: the flags for the store, the filters, and one line for each session."""

from __future__ import annotations

import argparse
import re
import time
from datetime import datetime
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any

from glidepath.apps.cli.arguments import add_config_flags, add_setting_flags
from glidepath.apps.cli.settings import SETTINGS
from glidepath.values import ConfigurationError, pluralize

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence

    from glidepath.agent import Replayed
    from glidepath.apps.cli.cli_context import CliContext
    from glidepath.apps.cli.layers import LoadedSettings
    from glidepath.apps.cli.teamfile import TeamFile
    from glidepath.sessions import Folded
    from glidepath.spi import Entry, SessionQuery, SessionStore
    from glidepath.values import Snapshot

_SHOWN, _FEWEST = 60, 10
_OF_STORE = ("store", "redact")
_OTHERS = frozenset(setting.key for setting in SETTINGS) - frozenset(_OF_STORE)
_WRITING = frozenset({"tag", "import", "stop", "send", "decide"})  # a fork copies what is there
_SPAN = re.compile(r"(\d+(?:\.\d+)?)(s|m|h|d|w)?")
_UNITS = {"s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0, "w": 604_800.0, None: 86_400.0}


def add_store_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags for the store."""
    add_setting_flags(parser, leave_out=_OTHERS)
    add_config_flags(parser)


def add_session_argument(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """Add the session to act on."""
    parser.add_argument("session", nargs="?", help="the session's id, the start of it, or its name")
    parser.add_argument("--last", action="store_true", help="the session that was active last")
    return parser


def add_file_actions(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `export` and `import`."""
    exported = add_session_argument(actions.add_parser("export", help="write a session and its children as JSON lines"))
    exported.add_argument("-o", "--out", metavar="FILE", help="where to (default: standard output)")
    imported = actions.add_parser("import", help="import what export wrote")
    imported.add_argument("file", help="the file; - reads standard input")
    imported.add_argument("--as", dest="name", metavar="ID", help="under another id")


def store_settings(options: argparse.Namespace, world: CliContext) -> LoadedSettings:
    """The settings of a command that needs no others than those of the store."""
    from glidepath.apps.cli.layers import gather

    return gather(options, world, only=_OF_STORE)


def act_on_store(
    options: argparse.Namespace,
    world: CliContext,
    command: str,
    act: Callable[[Any], Awaitable[int]],
    settings: LoadedSettings | None = None,
) -> int:
    """Do something with the store that the settings name."""
    from glidepath.apps.cli.session_names import find_last_session, find_session
    from glidepath.apps.cli.stores import add_redaction, assume_store, make_store, on_store

    action = getattr(options, "action", command)
    if hasattr(options, "last") and bool(options.session) == options.last:
        wrong = "take out --last or the id" if options.last else "name a session, or add --last for the last one"
        raise ConfigurationError(f"{action}: {wrong}; `glidepath sessions list` shows the ids")
    settings = settings or store_settings(options, world)
    reads = action not in _WRITING
    store = add_redaction(make_store(assume_store(settings, command), world), settings, world, reads=reads)

    async def act_on_found(kept: Any) -> int:
        if getattr(options, "last", False):
            options.session = await find_last_session(kept)
        elif getattr(options, "session", None):
            options.session = await find_session(kept, options.session)
        return await act(kept)

    return on_store(store, act_on_found)


def report_deleted(gone: list[str], world: CliContext) -> None:
    """Say how many sessions were deleted, and forget what was kept about them elsewhere."""
    from glidepath.apps.cli.chat_cards import forget_cards

    forget_cards(gone)
    world.note(f"deleted {pluralize(len(gone), 'session')}")


# --- which ones ----------------------------------------------------------------------------------------------------


def add_filters(parser: argparse.ArgumentParser) -> None:
    """Add the filters of a list."""
    group = parser.add_argument_group("which sessions")
    group.add_argument("--tag", help="only those with this tag")
    group.add_argument("--agent", metavar="NAME", help="only those whose last run was this agent's")
    group.add_argument("--user", metavar="NAME", help="only those whose last run was for this user")
    group.add_argument("--outcome", metavar="WORD", help=f"how the last run ended: {', '.join(_list_outcomes())}")
    group.add_argument("--state", metavar="WORD", help="state of the last run, such as completed or error")
    group.add_argument("--newer-than", metavar="TIME", help="active within the last 12h, 7d, 2w")
    group.add_argument("--older-than", metavar="TIME", help="not active within the last 12h, 7d, 2w")
    group.add_argument("--min-cost", metavar="USD", help="whose last run cost at least this")
    group.add_argument("--max-cost", metavar="USD", help="whose last run cost at most this")
    group.add_argument("--prefix", default="", metavar="TEXT", help="whose id begins with this")
    group.add_argument("--children", action="store_true", help="include the sessions of child agents")


def to_replay(settings: LoadedSettings, session: str) -> LoadedSettings:
    """The same settings; raises `ConfigurationError` if they do not name the model of the run."""
    if not settings.get("model"):
        raise ConfigurationError(
            "a replay calls no model, but needs its name and prices: pass --model NAME and the other flags of "
            f"{session}"
        )
    return settings


def replay_line(name: str, done: Replayed) -> str:
    """The result of a replay, in words."""
    if not done.same:
        return f"{name}: {done.difference}"
    until = f" up to where {done.until}; what follows cannot be compared" if done.until else ""
    return f"{name}: {pluralize(done.commits, 'commit')}, every hash the same{until}"


def replay_request(file: TeamFile, options: argparse.Namespace, world: CliContext) -> int:
    """Replay the runs that the members of a team made for a request, and compare."""
    from glidepath.apps.cli.stores import on_store, open_redacted_store
    from glidepath.teams.replaying import replay_team

    store = open_redacted_store(options.store, options.redact, world)
    found = on_store(store, lambda kept: replay_team(file.team(store=kept), options.goal))
    for name, done in found.items():
        world.note(replay_line(name, done))
    return 0 if all(done.same for done in found.values()) else 1


def query_of(options: argparse.Namespace, **fields: Any) -> SessionQuery:
    """The query for these options; raises `ConfigurationError` naming the wrong flag."""
    from glidepath.sessions.summaries import check_tag
    from glidepath.spi import SessionQuery

    now = time.time()
    newer, older = options.newer_than, options.older_than
    return SessionQuery(
        prefix=options.prefix,
        roots=not options.children,
        tag=None if options.tag is None else check_tag(options.tag),
        agent=options.agent,
        user=options.user,
        outcome=None if options.outcome is None else _parse_word("--outcome", options.outcome, _list_outcomes()),
        state=None if options.state is None else state_of(options.state),
        after=None if newer is None else now - seconds_of("--newer-than", newer),
        before=None if older is None else now - seconds_of("--older-than", older),
        min_cost=_parse_dollars("--min-cost", options.min_cost),
        max_cost=_parse_dollars("--max-cost", options.max_cost),
        **fields,
    )


def _list_outcomes() -> list[str]:
    from glidepath.values import LoopOutcome

    return [*(outcome.value for outcome in LoopOutcome), "unfinished"]


def state_of(text: str, *more: str) -> str:
    """The state of a run or a team that `--state` names, or one of the other words; raises `ConfigurationError`."""
    from glidepath.teams import TeamStatus
    from glidepath.values import AgentState

    known = [state.value for state in (*AgentState, *TeamStatus)]
    return _parse_word("--state", text, list(dict.fromkeys([*known, "queued", *more])))


def _parse_word(flag: str, text: str, known: Sequence[str]) -> str:
    word = text.strip().lower().replace("-", "_")
    if word not in known:
        raise ConfigurationError(f"{flag}: {text!r:.40} is not one of {', '.join(known)}")
    return word


def seconds_of(flag: str, text: str) -> float:
    """A span of time in seconds: 90s, 30m, 12h, 7d, 2w; a bare number is days."""
    found = _SPAN.fullmatch(text.strip().lower())
    if found is None or float(found[1]) > 1e6:  # noqa: PLR2004 - days: older than anything
        raise ConfigurationError(f"{flag}: expected a time such as 12h, 7d or 2w, got {text!r:.40}")
    return float(found[1]) * _UNITS[found[2]]


def _parse_dollars(flag: str, text: str | None) -> Decimal | None:
    if text is None:
        return None
    try:
        amount = Decimal(text.lstrip("$"))
    except InvalidOperation:
        amount = Decimal("nan")
    if not amount.is_finite():
        raise ConfigurationError(f"{flag}: expected an amount in dollars such as 0.25, got {text!r:.40}")
    return amount


# --- lines ---------------------------------------------------------------------------------------------------------


def describe_state(entry: Entry) -> str:
    """The state of a session's last run, in a word."""
    from glidepath.sessions import is_claimable

    if entry.summary.get("outcome"):
        return str(entry.summary["outcome"])
    if entry.summary.get("state") == "queued":
        return "queued"
    return "interrupted" if is_claimable(entry.owner, entry.expires, time.time()) else "running"


def format_row(entry: Entry, name: str, most: int) -> str:
    """One session on one line, its last column cut after `most`; nothing in it can steer the terminal."""
    from glidepath.apps.cli.status import clip_line
    from glidepath.sessions import is_foreign
    from glidepath.sessions.summaries import read_figures

    known = entry.summary
    when = datetime.fromtimestamp(entry.updated).astimezone().strftime("%Y-%m-%d %H:%M")
    used = read_figures(known)
    turns = used.get("turns", "-") if known.get("outcome") else "-"
    cost = _cost(used.get("cost"))
    tags = "".join(f"#{tag} " for tag in entry.tags)
    whose = f"{known.get('agent')}: " if is_foreign(entry) else ""
    what = clip_line(" ".join(f"{tags}{whose}{entry.title or known.get('task', '')}".split()), most)
    how = clip_line(describe_state(entry), 11)
    return f"{name}  {when}  {how:<11}  {clip_line(str(turns), 5):>5}  {cost:>8}  {what}".rstrip()


def _cost(value: object) -> str:
    from glidepath.apps.cli.status import format_money

    try:
        return format_money(Decimal(str(value))) if isinstance(value, str) else "-"
    except InvalidOperation:
        return "?"


def as_json(entry: Entry) -> dict[str, Any]:
    """One session as plain data."""
    from glidepath.sessions import is_foreign
    from glidepath.sessions.summaries import read_figures

    known = entry.summary
    used = read_figures(known)
    return {
        "session_id": entry.session_id,
        "title": entry.title,
        "tags": list(entry.tags),
        "state": known.get("state"),
        "outcome": known.get("outcome"),
        "standing": describe_state(entry),
        "agent": known.get("agent"),
        "model": known.get("model"),
        "user": known.get("user"),
        "task": known.get("task"),
        "turns": used.get("turns"),
        "tokens": used.get("tokens"),
        "cost": used.get("cost"),
        "runs": used.get("runs", 1),
        "updated": entry.updated,
        "parent": (known.get("parent") or {}).get("session_id") if isinstance(known.get("parent"), dict) else None,
        "foreign": is_foreign(entry),
    }


async def label_lines(store: SessionStore, session: str) -> list[str]:
    """The title and the tags that a person gave it, a line each."""
    from glidepath.apps.cli.display_text import escape_invisible
    from glidepath.sessions import entry_of

    entry = await entry_of(store, session)
    named = () if entry is None else (("title", entry.title), ("tags", " ".join(entry.tags)))
    return [f"{name:<9} {escape_invisible(text)}" for name, text in named if text]


def describe_usage(folded: Folded, snapshot: Snapshot) -> Iterator[str]:
    """What a session has used, the run that was interrupted included."""
    from glidepath.apps.cli.status import format_money

    totals, last = folded.session.totals, folded.session.last
    runs, turns, calls, tokens = totals.runs, totals.iterations, totals.tool_calls, totals.usage.total
    if folded.result is None:
        leg = last if last is not None and last.run_id == snapshot.run_id else None
        runs += leg is None
        turns += snapshot.iterations - (leg.iterations if leg else 0)
        calls += snapshot.tool_calls - (leg.tool_calls if leg else 0)
        tokens += snapshot.tokens - snapshot.carried.tokens - (leg.usage.total if leg else 0)
    landed = f" and {pluralize(snapshot.landing_calls, 'landing call')}" if snapshot.landing_calls and runs == 1 else ""
    told = f" in {pluralize(runs, 'message')}" if runs > 1 else ""
    yield f"turns     {turns}{landed}{told}, tool calls {calls}, tokens {tokens}"
    if totals.cost is not None:
        yield f"cost      {format_money(totals.cost)}, {pluralize(totals.usage.total, 'token')} in all"


def print_entries(entries: Sequence[Entry], world: CliContext, nothing: str, *, as_data: bool) -> None:
    """Print a table of sessions, or a JSON object for each. On a terminal, ids are short and rows fit."""
    from glidepath import _wire
    from glidepath.apps.cli.cli_context import screen_size
    from glidepath.apps.cli.display_text import escape_invisible
    from glidepath.apps.cli.session_names import shorten_id

    if as_data:
        world.write("".join(_wire.encode(as_json(entry)).decode() + "\n" for entry in entries))
    elif entries:
        live = world.is_terminal(world.stdout)
        names = [escape_invisible(shorten_id(entry.session_id) if live else entry.session_id) for entry in entries]
        width = max(7, *map(len, names))
        head = f"{'SESSION':<{width}}  {'LAST ACTIVE':<16}  {'OUTCOME':<11}  {'TURNS':>5}  {'COST':>8}  "
        most = min(_SHOWN, max(screen_size(world.stdout)[0] - len(head), _FEWEST)) if live else _SHOWN
        rows = [format_row(entry, f"{name:<{width}}", most) for entry, name in zip(entries, names, strict=True)]
        world.write("".join(f"{line}\n" for line in [f"{head}WHAT", *rows]))
    else:
        world.note(nothing)


def choose_store(options: argparse.Namespace, world: CliContext, what: str) -> str:
    """The store that was named, by its place or by --store, else that of the settings."""
    from glidepath.apps.cli.layers import gather
    from glidepath.apps.cli.stores import assume_store

    if options.place is None:
        return assume_store(gather(options, world, only=("store",)), what)
    if options.store is not None:
        raise ConfigurationError(f"which store: {options.place!r:.80}, or --store {options.store!r:.80}? Name one")
    return str(options.place)
