"""The chat as a person meets it in the first ten minutes: questions, figures, names, and old conversations."""

import asyncio

import pytest

from glidepath.cli.approval_dialog import ApprovalAsked, consult, question
from glidepath.cli.file_changes import Changes
from glidepath.messages import ToolCall
from glidepath.outcome import PendingCall
from glidepath.run import approve
from glidepath.tools import tool
from glidepath.workspace import Workspace, workspace_tools

from .test_chat import play, say, shown, talk, users
from .test_chat_people import SAVED, settle


# --- questions ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "fate"),
    [
        ("old line", "+ new"),
        ("gone", "It will fail: the old text is not in the file."),
        ("twice", "It will fail: the old text is in the file 2 times."),
    ],
)
def test_an_edit_is_in_the_workspace_whether_or_not_it_can_succeed(tmp_path, old, fate):
    (tmp_path / "notes.txt").write_text("old line\ntwice twice\n")
    space = Workspace(tmp_path)
    call = ToolCall(id="1", name="edit", arguments={"path": "notes.txt", "old": old, "new": "new"})
    planned = Changes(space).planned(call.name, call.arguments, workspace_tools(space, ["edit"]))
    rows = question(ApprovalAsked(name="1", pending=PendingCall(call=call), change=planned), 80)
    assert rows[0] == "The agent wants to call edit (in the workspace):"
    assert fate in "\n".join(rows)


def test_a_tool_of_your_own_called_edit_is_not_taken_for_the_one_of_the_workspace(tmp_path):
    @tool
    def edit(path: str, old: str, new: str) -> str:
        """Edit anything."""
        return path + old + new

    (tmp_path / "a").write_text("x")
    assert Changes(Workspace(tmp_path)).planned("edit", {"path": "a", "old": "x", "new": "y"}, [edit]) is None


def test_keys_at_a_question(tmp_path):
    """Capital letters answer; a stray key says what to do about it; a command there is a command."""

    async def script(app, pilot):
        prompt, asking = app.query_one("#prompt"), lambda app: app._asked is not None and prompt.single
        await say(app, pilot, "change both", asking)
        assert str(prompt.placeholder) == "Press y, n, a, e or r"
        await pilot.press("q")
        await settle(pilot, lambda: "empty the line to press y" in str(app.query_one("#status").render()))
        await pilot.press("backspace")
        await settle(pilot, lambda: "your decision" in str(app.query_one("#status").render()))
        await say(app, pilot, "/undo", lambda app: "still waits for your answer" in shown(app))
        assert "A turn is running: Esc interrupts it." in shown(app)
        assert app._asked is not None
        await pilot.press("Y")
        await settle(pilot, lambda: (tmp_path / "new.txt").exists() and asking(app))
        await pilot.press("N")
        await settle(pilot, lambda: not app.talk.busy)
        assert str(prompt.placeholder) == "Message, or /help"
        assert (tmp_path / "notes.txt").read_text() == "old line\n"

    (tmp_path / "notes.txt").write_text("old line\n")
    play(tmp_path, script, "edits", "--tools", "write,edit")


def test_outside_the_chat_a_slash_command_is_not_a_reason_for_refusing():
    said = iter(["/undo", "y"])
    rows = []

    async def ask(shown, *_):
        rows.extend(shown)
        return next(said)

    one = ApprovalAsked(name="1", pending=PendingCall(call=ToolCall(id="1", name="shell", arguments={})))
    assert asyncio.run(consult(one, (80, 24), ask)) == approve()
    assert rows[-1] == "/undo is a command of the chat, not an answer."
