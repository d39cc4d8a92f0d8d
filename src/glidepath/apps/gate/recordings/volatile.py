"""What differs from one run of an agent to the next although nothing is different: the table, as data.

Two requests are equal when they are equal after everything in this table is replaced by its name. What is `learned` is
put into the replies as well: where a recorded reply says an id of the recorded run, the replayed one says the id of
this run.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from typing import Any

from glidepath._wire import Value, WireError, encode, loads
from glidepath.apps.gate.known_agents import find_known

_MONTHS = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*"
_DAYS = r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]*"
_LEAST_FOLDER = 3
_NOISE = {name: dict(find_known(name).noise) for name in ("codex", "gemini-cli")}
_PRINTED = {"output", "wall_time_seconds"}
"""What marks the result of a command in Codex."""


class VolatileField(Value, frozen=True, kw_only=True):
    """One row: where it is (a pattern in any text of a request, or a whole member of its body), and what it is."""

    name: str
    what: str
    agent: str = ""
    """The agent that has it; empty for every one."""
    pattern: str = ""
    member: str = ""
    learned: bool = False


VOLATILE = (
    VolatileField(
        name="id",
        what="UUIDs: sessions, threads, turns, messages",
        pattern=r"(?<![0-9a-fA-F])[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}(?![0-9a-fA-F])",
        learned=True,
    ),
    VolatileField(
        name="date",
        what="dates and times: 2026-01-31, 2026-01-31T10:00:00Z",
        pattern=r"(?<![\w-])\d{4}-\d\d-\d\d"
        r"(?:[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?: ?(?:Z|UTC|[+-]\d\d:?\d\d))?)?(?!\w)",
    ),
    VolatileField(
        name="day",
        what="dates as people write them: Sat Jan 31 10:00:00 2026",
        pattern=rf"(?<!\w)(?:{_DAYS},? +)?(?:{_MONTHS} +\d{{1,2}}|\d{{1,2}} +{_MONTHS}(?! +\d{{1,2}}(?!\d)))"
        r"(?:,? +\d{4})?(?: +\d\d:\d\d(?::\d\d)?)?(?: +[AP]M)?(?: +[A-Z]{3,4})?(?: +\d{4})?(?: +[+-]\d{4})?(?!\w)",
    ),
    VolatileField(name="time", what="times: 10:00:00", pattern=r"(?<![\w:])\d\d:\d\d:\d\d(?:[.,]\d+)?(?![\w:])"),
    VolatileField(
        name="port",
        what="ports of this machine: 127.0.0.1:8080",
        pattern=r"(?<![\w.])(?:127\.0\.0\.1|localhost|\[::1\]):\d{2,5}(?!\d)",
        learned=True,
    ),
    VolatileField(
        name="duration",
        what="how long something took: in 0.02s, 0m0.003s, 0.1 seconds",
        pattern=r"(?<=\bin )\d+(?:\.\d+)? ?m?s(?:econds)?\b|\b\d+m\d+\.\d+s\b|\b\d+\.\d+ seconds\b",
    ),
    VolatileField(name="pid", what="process ids: pid 123", pattern=r"(?i:(?<=\bpid )|(?<=\bpid: )|(?<=\bpid=))\d+\b"),
    VolatileField(name="address", what="addresses in memory: 0x7f00aa", pattern=r"\b0x[0-9a-f]{6,16}\b"),
    VolatileField(
        name="above",
        what="what `ls -la` says about the folder above, and its sum of blocks",
        pattern=r"(?m:^total \d+$|^d[rwxsStT-]{9}[.+@]? +\d+ .* \.\.$)",
    ),
    VolatileField(
        name="temporary",
        what="temporary files, as mktemp names them",
        pattern=r"/tmp/tmp[\w.-]+",  # noqa: S108 - a pattern
        learned=True,
    ),
    VolatileField(
        name="commit",
        what="new commits of git: commit 1f00..., [main 1f00aa1]",
        pattern=r"(?<=\bcommit )[0-9a-f]{40}\b|(?<=\[)[\w./-]+ (?:\(root-commit\) )?[0-9a-f]{7,12}(?=\])",
        learned=True,
    ),
    VolatileField(agent="claude-code", name="metadata", what="who asks: device, account, session", member="metadata"),
    VolatileField(
        agent="claude-code",
        name="agent",
        what="ids of sub-agents",
        pattern=r"(?<![\w])a[0-9a-f]{16}(?!\w)",
        learned=True,
    ),
    VolatileField(
        agent="claude-code",
        name="task",
        what="ids of commands in the background",
        pattern=r"(?<=\bID: )[a-z0-9]{6,12}\b|(?<=/tasks/)[a-z0-9]{6,32}(?=\.output)|(?<=<task-id>)[a-z0-9]{6,32}(?=<)",
        learned=True,
    ),
    VolatileField(
        agent="claude-code",
        name="took",
        what="how long a sub-agent took",
        pattern=r"(?<=duration_ms: )\d+|(?<=<duration_ms>)\d+",
    ),
    VolatileField(
        agent="claude-code",
        name="release",
        what="the release in the first text of the system prompt",
        pattern=r"\bcc_version=[\w.]+|\bcch=\w+",
    ),
    VolatileField(agent="codex", name="client", what="who asks: installation, session, turn", member="client_metadata"),
    VolatileField(agent="codex", name="cache", what="the session as the key of the cache", member="prompt_cache_key"),
    VolatileField(
        agent="codex",
        name="chunk",
        what="ids of pieces of output",
        pattern=_NOISE["codex"]["chunk"],
    ),
    VolatileField(
        agent="codex",
        name="took",
        what="how long a command ran",
        pattern=f"{_NOISE['codex']['took']}|{_NOISE['codex']['time']}",
    ),
    VolatileField(
        agent="codex",
        name="process",
        what="ids of commands that still run",
        pattern=r'(?<=session ID )\d+|(?<="session_id":)\d+',
        learned=True,
    ),
    VolatileField(
        agent="gemini-cli",
        name="group",
        what="process groups of commands",
        pattern=_NOISE["gemini-cli"]["group"],
    ),
)
"""The table. Beside it, the working folder, the home folder and the agent's own release are volatile, as they are."""
PLACES = {
    "folder": "the working folder, also as a part of names",
    "home": "the home folder",
    "version": "the release of the agent",
    "lines": "in Codex, the order of lines that a command writes: it reads output and errors side by side",
    "order": "the order of results of calls that were made at once, and of reports of sub-agents that came at once",
}
"""What is volatile and known only when a run is there."""


class Place(Value, frozen=True, kw_only=True):
    """One run: where it ran, and which release of which agent it was."""

    agent: str = ""
    folder: str = ""
    home: str = ""
    version: str = ""

    def literals(self) -> dict[str, str]:
        """Texts that stand for this run, each with its name; the longest first."""
        found: dict[str, str] = {}
        for name, path in (("home", self.home), ("folder", self.folder)):
            if len(path) >= _LEAST_FOLDER:
                found[path] = name
                found[re.sub(r"[^A-Za-z0-9]", "-", path)] = f"{name}-name"
        if self.version:
            found[self.version] = "version"
        return dict(sorted(found.items(), key=lambda pair: -len(pair[0])))


class Normal(Value, frozen=True, gc=False):
    """A text without what is volatile, and what was: pairs of a name and the value."""

    text: str
    found: tuple[tuple[str, str], ...] = ()


class Normalizer:
    """Takes what is volatile out of the requests of one run."""

    def __init__(self, place: Place) -> None:
        rows = [row for row in VOLATILE if row.agent in ("", place.agent)]
        self.members = frozenset(row.member for row in rows if row.member)
        literals = place.literals()
        self._names = [*literals.values(), *[row.name for row in rows if row.pattern]]
        parts = [rf"(?<![\w.]){re.escape(text)}(?!\w)" for text in literals]
        # Not among its own: `-tmp-work` is found inside a longer name, too.
        parts = [
            re.escape(text) + r"(?![A-Za-z0-9_])" if name != "version" else part
            for part, (text, name) in zip(parts, literals.items(), strict=True)
        ]
        parts += [row.pattern for row in rows if row.pattern]
        self._pattern = re.compile("|".join(f"({part})" for part in parts))
        self._known: dict[str, Normal] = {}

    def read(self, body: object) -> Any:
        """A body without what is volatile, its members in order of their names."""
        if isinstance(body, Mapping):
            body = {name: value for name, value in body.items() if name not in self.members}
        return self._walk(body)

    def _walk(self, value: object) -> Any:
        if isinstance(value, str):
            return self.normalize(value).text
        if isinstance(value, Mapping):
            walked = {name: self._walk(value[name]) for name in sorted(value)}
            if walked.keys() >= _PRINTED and isinstance(walked["output"], str):
                # Codex reads both outputs of a command side by side: which line is first is chance.
                walked["output"] = "\n".join(sorted(walked["output"].split("\n")))
            return walked
        if isinstance(value, list):
            return [self._walk(one) for one in arrange(value)]
        return value

    def normalize(self, text: str) -> Normal:
        """A text without what is volatile. What was asked before is remembered: a conversation repeats itself."""
        known = self._known.get(text)
        if known is None:
            known = self._known[text] = self._take_out(text)
        return known

    def _take_out(self, text: str) -> Normal:
        found: list[tuple[str, str]] = []
        if text[:1] in ("{", "[") and text[-1:] in ("}", "]"):  # JSON in a text: what is in it are texts, too
            text = self._open(text, found)

        def replace(match: re.Match[str]) -> str:
            name = self._names[(match.lastindex or 1) - 1]
            found.append((name, match[0]))
            return f"<{name}>"

        return Normal(self._pattern.sub(replace, text), tuple(found))

    def _open(self, text: str, found: list[tuple[str, str]]) -> str:
        try:
            value = loads(text.encode())
        except (WireError, ValueError, RecursionError):
            return text
        for one in _texts_in(value):
            found += self.normalize(one).found
        return encode(self._walk(value)).decode()


def _texts_in(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for name in sorted(value):
            yield from _texts_in(value[name])
    elif isinstance(value, list):
        for one in arrange(value):
            yield from _texts_in(one)


def arrange(values: list[Any]) -> list[Any]:
    """A list with what came at once in the order of its ids: results of calls, reports of sub-agents.

    Which comes first is chance. What marks a place for the cache goes with the place, and is left out there.
    """
    found: list[Any] = []
    for is_result, run in itertools.groupby(values, lambda one: _result_id(one) is not None):
        several = list(run)
        if is_result and len(several) > 1:
            several.sort(key=lambda one: str(_result_id(one)))
            several = [{name: part for name, part in one.items() if name != "cache_control"} for one in several]
        found += several
    return found


def _result_id(value: object) -> str | None:
    """Whose result this is: of a call in any dialect, or of a sub-agent of Codex."""
    if not isinstance(value, Mapping):
        return None
    if value.get("role") == "tool":
        return value.get("tool_call_id")
    kind = str(value.get("type", ""))
    if kind == "tool_result":
        return value.get("tool_use_id")
    if kind == "agent_message":
        return f"{value.get('author')} {value.get('content')}"
    return value.get("call_id") if kind.endswith("_call_output") else None


LEARNED = frozenset(row.name for row in VOLATILE if row.learned) | {"folder", "home", "folder-name", "home-name"}


def learn(recorded: object, live: object, ours: Normalizer, theirs: Normalizer) -> Iterator[tuple[str, str]]:
    """What the recorded run called what this run calls otherwise, from two requests that are equal."""
    if isinstance(recorded, str) and isinstance(live, str):
        if recorded != live:
            pairs = zip(ours.normalize(recorded).found, theirs.normalize(live).found, strict=False)
            yield from [(before, now) for (name, before), (_, now) in pairs if name in LEARNED and before != now]
    elif isinstance(recorded, Mapping) and isinstance(live, Mapping):
        for name in recorded.keys() & live.keys():
            yield from learn(recorded[name], live[name], ours, theirs)
    elif isinstance(recorded, list) and isinstance(live, list):
        for one, other in zip(arrange(recorded), arrange(live), strict=False):
            yield from learn(one, other, ours, theirs)


def print_table() -> str:
    """The table as Markdown, for the page about replays and for `glidepath replay --volatile`."""
    lines = ["| agent | name | what differs | where |", "|---|---|---|---|"]
    for name, what in PLACES.items():
        lines.append(f"| every | `{name}` | {what} | any text |")
    for row in VOLATILE:
        where = f"the member `{row.member}`" if row.member else "any text"
        lines.append(f"| {row.agent or 'every'} | `{row.name}` | {row.what} | {where} |")
    return "\n".join(lines)
