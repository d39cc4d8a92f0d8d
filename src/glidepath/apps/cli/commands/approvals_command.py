"""Ask what a set of approval rules would have decided about the calls in a store. Nothing runs, no model is called.

Example: glidepath approvals what-if rules.toml sessions.db
"""

from __future__ import annotations

import argparse
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from glidepath.values import pluralize

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from glidepath.apps.cli.cli_context import CliContext
    from glidepath.guards.approvals import Rules
    from glidepath.spi import SessionStore

_EXAMPLES = """\
examples:
  glidepath approvals what-if glidepath.toml sessions.db
  glidepath approvals what-if rules.toml --calls ask
"""
_WORDS = {"allow": "would run", "ask": "would ask", "deny": "would not run", "none": "no rule"}
_SHOWN = 100


class Judged(NamedTuple):
    """One stored call, and what the rules say about it."""

    session: str
    call: str
    verdict: str
    rule: str


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from glidepath.apps.cli.session_flags import add_filters, add_store_flags

    parser.epilog = _EXAMPLES
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True, title="actions")
    tried = actions.add_parser("what-if", help="count what the rules would have allowed, asked about and denied")
    tried.add_argument("rules", metavar="RULES", help="a TOML or JSON file with a section [approvals]")
    tried.add_argument("place", nargs="?", metavar="STORE", help="the store: a path or an address")
    tried.add_argument(
        "--calls", choices=("allow", "ask", "deny", "none", "all"), help="also list the calls with this verdict"
    )
    tried.add_argument("--json", action="store_true", help="print one JSON object per call")
    add_filters(tried)
    add_store_flags(tried)


def execute(options: argparse.Namespace, world: CliContext) -> int:
    """Judge every stored call by the rules, and print what would have been."""
    from glidepath.apps.cli.session_flags import choose_store, query_of
    from glidepath.apps.cli.stores import make_store, on_store
    from glidepath.guards.approvals import read_rules

    rules = read_rules(_read_file(options.rules, world))
    store = make_store(choose_store(options, world, "approvals what-if"), world)
    judged, unreadable = on_store(store, lambda kept: _judge_store(kept, rules, query_of(options)))
    for problem in unreadable:
        world.note(f"left out: {problem}")
    if options.json:
        for one in judged:
            world.write_json(one._asdict())
        return 0
    for line in _report(judged, options.calls):
        world.write(f"{line}\n")
    return 0


def _read_file(name: str, world: CliContext) -> Rules:
    """The rules in a file; raises `ConfigurationError` when it has none."""
    from glidepath.apps.cli.agent_maker import make_rules
    from glidepath.apps.cli.layers import load
    from glidepath.values import ConfigurationError

    path = world.folder / name
    if not path.is_file():
        raise ConfigurationError(f"there is no file {name!r:.100}: name a TOML or JSON file with a section [approvals]")
    found = {key: value for key, (value, _) in load(path).items()}
    rules = make_rules(found)
    if rules is None:
        raise ConfigurationError(f"{path.name}: there are no rules; write [approvals] with allow, deny or ask")
    return rules


async def _judge_store(store: SessionStore, rules: Sequence[Any], query: Any) -> tuple[list[Judged], list[str]]:
    from glidepath.sessions import each_session, read_journal
    from glidepath.values import AssistantMessage, StoreError

    judged: list[Judged] = []
    unreadable: list[str] = []
    async for entry in each_session(store, query, roots=False):
        try:
            journal = await read_journal(store, entry.session_id)
        except StoreError as error:
            unreadable.append(f"{entry.session_id}: {error}")
            continue
        calls = [
            call for one in journal.folded.messages if isinstance(one, AssistantMessage) for call in one.tool_calls
        ]
        judged += [_judge_call(entry.session_id, call, rules) for call in calls]
    return judged, unreadable


def _judge_call(session: str, call: Any, rules: Sequence[Any]) -> Judged:
    from glidepath.guards.approvals import decide, usual_subject
    from glidepath.run import call_line

    found = decide(rules, call.name, None, call.arguments, usual_subject(call.name, call.arguments))
    line = call_line(call.name, call.arguments)
    return Judged(session, line, "none", "") if found is None else Judged(session, line, *found)


def _report(judged: Sequence[Judged], listed: str | None) -> Iterator[str]:
    from glidepath.apps.cli.display_text import escape_invisible
    from glidepath.apps.cli.status import clip_line

    for one in judged:
        if listed in (one.verdict, "all"):
            name = f" ({one.rule})" if one.rule else ""
            yield clip_line(escape_invisible(f"{_WORDS[one.verdict]}: {one.call}{name}"), _SHOWN)
    by_rule = Counter((one.verdict, one.rule) for one in judged)
    for (verdict, rule), count in sorted(by_rule.items(), key=lambda pair: (-pair[1], pair[0])):
        yield f"{count:>7}  {_WORDS[verdict]:<13}  {escape_invisible(rule)}".rstrip()
    counts = Counter(one.verdict for one in judged)
    parts = ", ".join(f"{counts[verdict]} {words}" for verdict, words in _WORDS.items() if verdict != "none")
    rest = f"{counts['none']} covered by no rule: those ask where their tool needs approval"
    yield f"{pluralize(len(judged), 'call')}: {parts}; {rest}"
