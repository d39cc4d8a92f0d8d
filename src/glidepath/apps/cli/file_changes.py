"""Changes an agent makes to files: shown as a diff before and after, and undone on request."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping, Sequence
from difflib import unified_diff
from typing import Any, NamedTuple

from glidepath.apps.cli.agent_maker import workspace_folder
from glidepath.apps.cli.cli_context import CliContext
from glidepath.apps.cli.display_text import escape_invisible, width_of
from glidepath.apps.cli.layers import LoadedSettings
from glidepath.spi import Ask, Plugin, ToolCallContext
from glidepath.tools import Tool
from glidepath.values import Message, ToolError, pluralize
from glidepath.workspace import Workspace, file_tools
from glidepath.workspace.file_tools import write_file

WRITERS = ("write", "edit")
ASKED = "this tool changes files"
_MOST = 2_000_000
_GUTTER = "    "
_EARLIER = "Changes from before this chat was opened cannot be shown or undone."
_FATES = {-1: "there is no such file", 0: "the old text is not in the file"}


class Change(NamedTuple):
    """One file before and after a call; None means no file."""

    path: str
    before: str | None
    after: str | None


class NoChange(NamedTuple):
    """A `write` or `edit` that will fail, and why; or whose change cannot be shown, and `why` is empty."""

    why: str = ""


def edits_workspace(name: str, tools: Iterable[Tool]) -> bool:
    """True for the `write` and `edit` of the workspace, which reach no file outside it."""
    return name in WRITERS and any(tool.name == name and tool.__module__ == file_tools.__name__ for tool in tools)


class Changes(Plugin):
    """Sees every `write` and `edit` just before it runs, and remembers the file as it was.

    With `asking`, a person is asked about each of them. It is one for all turns of a conversation.
    """

    name = "changes"

    def __init__(self, workspace: Workspace, *, asking: bool = False) -> None:
        self._workspace = workspace
        self._asking = asking
        self._begun: dict[str, tuple[str, str | None]] = {}
        self._turns: list[list[Change]] = [[]]
        self._left: list[Change] = []
        self._seen: set[str] = set()

    def before_tool_call(self, context: ToolCallContext) -> Ask | None:
        """Remember the file; ask if a person wants to be asked."""
        if context.call.name not in WRITERS:
            return None
        path = str(context.arguments.get("path", ""))
        with contextlib.suppress(ToolError, OSError, ValueError):
            self._begun[context.call.id] = path, self._read(path)
        return Ask(ASKED) if self._asking and not context.approved else None

    def needs_approval(self, name: str) -> bool:
        """True for a tool whose calls a person is asked about because they change files."""
        return self._asking and name in WRITERS

    def start_turn(self) -> None:
        """Changes from here on are undone separately."""
        if self._turns[-1]:
            self._turns.append([])

    def take_done(self, call_id: str) -> Change | None:
        """What a call changed, now that it has ended; None when that is not known."""
        begun = self._begun.pop(call_id, None)
        if begun is None:
            return None
        self._seen.add(call_id)
        path, before = begun
        try:
            after = self._read(path)
        except (ToolError, OSError, ValueError):
            return None
        if before == after:
            return None
        change = Change(path, before, after)
        self._turns[-1].append(change)
        return change

    def plan_change(self, name: str, arguments: Mapping[str, Any], tools: Iterable[Tool]) -> Change | NoChange | None:
        """What a call would change; None for any tool but the `write` and `edit` of the workspace."""
        if not edits_workspace(name, tools):
            return None
        path = str(arguments.get("path", ""))
        try:
            before = self._read(path)
        except (ToolError, OSError, ValueError):
            return NoChange()
        if name == "write":
            content = arguments.get("content")
            return Change(path, before, content) if isinstance(content, str) else NoChange()
        old, new = arguments.get("old"), arguments.get("new")
        if not isinstance(old, str) or not isinstance(new, str) or not old:
            return NoChange()
        found = -1 if before is None else before.count(old)
        if before is None or found == 0 or (found > 1 and not arguments.get("every")):
            return NoChange(f"It will fail: {_FATES.get(found, f'the old text is in the file {found} times')}.")
        return Change(path, before, before.replace(old, new))

    def all(self) -> list[Change]:
        """How each file has changed since the conversation began."""
        first: dict[str, Change] = {}
        for turn in self._turns:
            for change in turn:
                known = first.get(change.path, change)
                first[change.path] = Change(change.path, known.before, change.after)
        return [change for change in first.values() if change.before != change.after]

    def describe_unseen(self, messages: Sequence[Message]) -> str:
        """A sentence about changes in this conversation that were made before this object was there; or nothing."""
        done = {one.call_id for one in messages if one.role == "tool_result" and not one.is_error} - self._seen
        calls = [call for one in messages if one.role == "assistant" for call in one.tool_calls]
        return f" {_EARLIER}" if any(call.name in WRITERS and call.id in done for call in calls) else ""

    def undo(self) -> tuple[list[str], list[str]]:
        """Restore the files of the last turn that changed any: what was done, and which files were restored.

        What cannot be restored stays, for another try. After the second, it no longer bars the turn before it.
        """
        while len(self._turns) > 1 and not self._turns[-1]:
            self._turns.pop()
        turn = self._turns[-1]
        if not turn:
            return ["There is nothing to undo. Only what write and edit have changed in this chat can be undone."], []
        merged: dict[str, Change] = {}
        for change in turn:
            known = merged.get(change.path, change)
            merged[change.path] = Change(change.path, known.before, change.after)
        tried = [(change, *self._put_back(change)) for change in merged.values()]
        said = [text for _, _, text in tried]
        left = [change for change, is_back, _ in tried if not is_back]
        again, self._left, self._turns[-1] = left == self._left, left, left
        if left and again and len(self._turns) > 1:
            self._turns[-2:] = [self._turns[-2] + left]
            said.append("/undo once more undoes the turn before, too.")
        restored = [change.path for change, is_back, _ in tried if is_back]
        told = ["The model is told with your next message. Changes made by shell commands are not undone."]
        return said + (told if restored else []), restored

    def _put_back(self, change: Change) -> tuple[bool, str]:
        name = escape_invisible(change.path)
        try:
            if self._read(change.path) != change.after:
                return False, f"{name}: left alone, because it has been changed since"
            if change.before is None:
                with self._workspace.place(change.path) as (folder, file):
                    os.unlink(file, dir_fd=folder)
                return True, f"{name}: removed, it was new"
            write_file(self._workspace, change.path, change.before)
        except (ToolError, OSError, ValueError) as error:
            return False, f"{name}: cannot be put back: {error}"
        return True, f"{name}: put back"

    def _read(self, path: str) -> str | None:
        """The text of a file; None when there is none. Raises for what is not text, or too long."""
        try:
            with self._workspace.file(path) as found:
                data = os.pread(found, _MOST + 1, 0)
        except ToolError:
            with self._workspace.place(path) as (folder, name):
                try:
                    os.stat(name, dir_fd=folder, follow_symlinks=False)
                except FileNotFoundError:
                    return None
            raise
        if len(data) > _MOST:
            raise ValueError("too long")
        return data.decode()


def format_difference(change: Change, width: int, *, context: int = 3, most: int = 0) -> list[str]:
    """The rows of a change: `+` and `-` behind a gutter, whatever cannot be seen revealed; `most` rows (0: all)."""
    before, after = _lines(change.before), _lines(change.after)
    kind = "new file" if change.before is None else "removed" if change.after is None else ""
    rows: list[str] = []
    for line in list(unified_diff(before, after, n=context, lineterm=""))[2:]:
        if line.startswith("@@"):
            rows += [_GUTTER + ".."] if rows else []
            continue
        rows += _fold_line(line[0], line[1:], width)
    if change.before == change.after:
        return [f"  {escape_invisible(change.path)} (no change: the file has this text already)"]
    added = sum(row.startswith(f"{_GUTTER}+") for row in rows)
    removed = sum(row.startswith(f"{_GUTTER}-") for row in rows)
    if most and len(rows) > most:
        rows = [*rows[:most], f"{_GUTTER}.. {pluralize(len(rows) - most, 'more row')}"]
    tail = ", ".join(filter(None, [kind, f"+{added} -{removed}"]))
    return [f"  {escape_invisible(change.path)} ({tail})", *rows]


def _lines(text: str | None) -> list[str]:
    if not text:
        return []
    lines = text.split("\n")
    return lines[:-1] if lines[-1] == "" else [*lines[:-1], f"{lines[-1]} (no line end)"]


def _fold_line(sign: str, text: str, width: int) -> Iterable[str]:
    """A line in as many rows as it needs; each of them has its sign."""
    room = max(width - len(_GUTTER) - 2, 8)
    shown = escape_invisible(text, keep="\t").replace("\t", "    ")
    while True:
        cut = room if shown.isascii() else next((n for n in range(len(shown), 0, -1) if width_of(shown[:n]) <= room), 1)
        yield f"{_GUTTER}{sign} {shown[:cut]}"
        shown = shown[cut:]
        if not shown:
            return


def color_rows(rows: Sequence[str]) -> list[tuple[str, str]]:
    """Every row with its color: green for added, red for removed."""
    colors = {f"{_GUTTER}+": "green", f"{_GUTTER}-": "red", f"{_GUTTER}.": "dim"}
    return [(row, colors.get(row[: len(_GUTTER) + 1], "")) for row in rows]


def make_changes(settings: LoadedSettings, world: CliContext) -> Changes:
    """The plugin that follows writes and edits; with --edits ask, it asks a person about each."""
    workspace = Workspace(workspace_folder(settings, world), allow_protected=settings.get("allow_protected") or ())
    return Changes(workspace, asking=settings.get("edits") == "ask")
