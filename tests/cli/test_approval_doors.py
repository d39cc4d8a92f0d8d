"""What a person is shown and what counts as their answer, on a real terminal."""

import os
import pty
import select
import sys
import time

import pytest
from tests.spoofs import IDS, SPOOFS, assert_shown

from glidepath.apps.cli import ApprovalAsked, format_question
from glidepath.guards.approvals import AlwaysAllowed, scope_of, simple_words
from glidepath.messages import ToolCall
from glidepath.outcome import PendingCall
from glidepath.run import question_rows
from glidepath.workspace import Workspace, workspace_tools

from .shell_user import environment
from .terminal import READ, Terminal
from .test_approval import asked, consulted

MODELS = """
import json
from glidepath.testing import ScriptedModel, call, say
def calls():
    commands = json.load(open("commands.json"))
    return ScriptedModel([*(call("shell", command=one) for one in commands), say("all done")])
"""


@pytest.mark.parametrize("spoof", SPOOFS, ids=IDS)
def test_the_terminal_asks_with_the_rows_that_every_other_door_gets(spoof):
    one = asked(command=spoof.value)
    assert_shown(spoof, "\n".join(format_question(one, 79)))
    assert format_question(one, 100)[1:] == question_rows(one.pending)[1:], "there is one rule"


@pytest.mark.parametrize(
    "text",
    [
        "na\u00efve caf\u00e9",
        "\u0420\u0443\u0441\u0441\u043a\u0438\u0439 \u0442\u0435\u043a\u0441\u0442 \u043e \u0434\u0435\u043b\u0435",
        "\u65e5\u672c\u8a9e",
        "\u03b5\u03bb\u03bb\u03b7\u03bd\u03b9\u03ba\u03ac",
        "\u0939\u093f\u0928\u094d\u0926\u0940 \u0e44\u0e17\u0e22",
        "\u0627\u0644\u0639\u0631\u0628\u064a\u0629 \u05e2\u05d1\u05e8\u05d9\u05ea",
        "\u65e5\u672c\u8a9ePython 5\u00b5m \u0142\u00f3d\u017a k\u0131rm\u0131z\u0131 na\u0308ive 2\u03c0",
        "x\u00b2 \u2026",
    ],
)
def test_ordinary_text_of_any_language_is_left_alone(text):
    assert "<U+" not in "\n".join(question_rows(asked(note=text).pending))


class Person:
    """`glidepath run` with a shell on a terminal of its own, and somebody who types."""

    def __init__(self, folder, commands, rows=24):
        import fcntl
        import json
        import struct
        import termios

        (folder / "spoofing.py").write_text(MODELS)
        (folder / "commands.json").write_text(json.dumps(commands))
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            os.chdir(folder)
            os.environ.clear()
            os.environ.update(environment(TERM="xterm-256color", HOME=str(folder)))
            words = [sys.executable, "-m", "glidepath", "run", "--model", "python:spoofing:calls", "--tools", "shell"]
            os.execv(sys.executable, [*words, "--store", "none", "--sandbox", "off", "do it"])
        fcntl.ioctl(self.terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, 100, 0, 0))
        self.seen = ""
        self.looked = 0

    def until(self, *words, seconds=60):
        """What has come since the last look, when one of the words is in it."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            new = self.seen[self.looked :]
            if any(word in new for word in words):
                self.looked = len(self.seen)
                return new
            if select.select([self.terminal], [], [], 0.05)[0]:
                try:
                    self.seen += os.read(self.terminal, 65_536).decode(errors="replace")
                except OSError:
                    break
        raise AssertionError(f"{words} never came:\n{self.seen[self.looked :]}")

    def type(self, keys, *, after=READ):
        time.sleep(after)
        os.write(self.terminal, keys.encode())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.kill(self.pid, 9)
        os.waitpid(self.pid, 0)
        os.close(self.terminal)


@pytest.mark.process
def test_every_spoof_is_made_visible_on_a_real_terminal_and_nothing_runs_unseen(tmp_path):
    with Person(tmp_path, [spoof.value for spoof in SPOOFS]) as person:
        for spoof in SPOOFS:
            whole = person.until("allow it?", "Enter shows more")
            while "allow it?" not in whole:
                person.type("\n", after=0)
                whole = whole.rpartition("\n")[0] + "\n" + person.until("allow it?", "Enter shows more").lstrip("\r\n")
            assert_shown(spoof, whole[whole.index("wants to call") :])
            person.type("n")
        person.until("all done")
    assert not list(tmp_path.glob("PWNED*"))


@pytest.mark.process
@pytest.mark.parametrize("keys", ["y\n", "a", "a\n", "y"])
def test_no_answer_counts_before_the_question_can_have_been_read(tmp_path, keys):
    with Person(tmp_path, ["touch PWNED"]) as person:
        person.until("allow it?")
        person.type(keys, after=0.06)
        person.type("n", after=1.2)
        person.until("all done")
    assert not (tmp_path / "PWNED").exists()


@pytest.mark.process
@pytest.mark.parametrize("words", ["you must not do that", "always a bad idea", "yes but not now", "a"])
def test_typed_words_are_never_an_approval(tmp_path, words):
    with Person(tmp_path, ["touch PWNED"]) as person:
        person.until("allow it?")
        person.type(words[0])
        person.type(words[1:], after=0.3)
        time.sleep(0.5)
        assert not (tmp_path / "PWNED").exists(), "the first letter is no answer"
        person.type("\n", after=0)
        if words == "a":
            person.until("always?")
            person.type("\n")
            person.until("Not allowed for good.", "allow it?")
            person.type("n")
        person.until("all done")
    assert not (tmp_path / "PWNED").exists()


@pytest.mark.process
@pytest.mark.parametrize("word", ["yes", "Yes", "ok", "approve", "always"])
def test_a_word_that_means_yes_asks_for_the_key(tmp_path, word):
    """It neither approves nor refuses: the question says which key does, and is asked again."""
    with Person(tmp_path, ["touch PWNED"]) as person:
        person.until("allow it?")
        person.type(f"{word}\n")
        told = person.until("allow it?")
        assert f"words never approve a call: press {'a' if word == 'always' else 'y'}, then Enter." in told
        time.sleep(0.3)
        assert not (tmp_path / "PWNED").exists()
        person.type("y\n")
        person.until("all done")
    assert (tmp_path / "PWNED").exists()


@pytest.mark.process
def test_a_word_is_no_second_yes_to_always_either(tmp_path):
    with Person(tmp_path, ["git status -s"]) as person:
        person.until("allow it?")
        person.type("a\n")
        person.until("always?")
        person.type("yes\n")
        assert "Not allowed for good." in person.until("allow it?")
        person.type("n")
        person.until("all done")


@pytest.mark.process
def test_always_needs_a_second_answer_and_covers_what_was_shown(tmp_path):
    commands = ["git status -s", "git status src -s", "git status --porcelain", "git status -s; touch PWNED"]
    with Person(tmp_path, commands) as person:
        person.until("allow it?")
        person.type("a\n")
        told = person.until("always?")
        covered = "git status and any words after it, with -s and no other flags"
        assert f"From now on, without asking: shell: {covered}" in told
        person.type("y\n")
        for command in commands[2:]:  # the second is covered
            assert command.partition(";")[0] in person.until("allow it?")
            person.type("n")
        person.until("all done")
    assert not (tmp_path / "PWNED").exists()


def test_in_the_chat_no_answer_counts_before_the_question_can_have_been_read(tmp_path):
    (tmp_path / "spoofing.py").write_text(MODELS)
    (tmp_path / "commands.json").write_text('["touch PWNED"]')
    argv = ["chat", "--model", "python:spoofing:calls", "--tools", "shell", "--store", "none", "--sandbox", "off"]
    with Terminal(90, tmp_path, *argv, height=30) as terminal:
        terminal.until("Ctrl-D", "ready")
        terminal.type("go", "Enter")
        while "allow it?" not in terminal.screen():
            time.sleep(0.01)
        terminal.type("y", "Enter")
        terminal.until("allow it?")
        assert not (tmp_path / "PWNED").exists()
        time.sleep(READ)
        terminal.type("yes", "Enter")
        terminal.until("words never approve a call: press y")
        assert not (tmp_path / "PWNED").exists()
        time.sleep(READ)
        terminal.type("you must not", "Enter")
        terminal.until("The model is told why: you must not")
    assert not (tmp_path / "PWNED").exists()


# --- what always covers ---------------------------------------------------------------------------------------------


@pytest.fixture
def tools(tmp_path):
    return workspace_tools(Workspace(tmp_path), ["read", "write", "edit", "list", "shell"], sandbox="off")


def pending(name, *, reason="", origins=(), **arguments):
    return PendingCall(call=ToolCall("c", name, arguments), reason=reason, origins=origins)


def allowed(tools, first, then):
    """Whether the second call is covered once the first was allowed for good."""
    always = AlwaysAllowed()
    scope = scope_of(first, tools)
    if scope is not None:
        always.add(scope)
    return always.is_covered(then, tools)


@pytest.mark.parametrize(
    ("first", "then", "covered"),
    [
        ("git add a.py", "git add b.py c.py", True),
        ("git add a.py", "git add -A", False),
        ("git add a.py", "git commit", False),
        ("git log -n 5", "git log -n 5 src", True),
        ("git log -n 5", "git log -n 9", False),
        ("npm test", "npm test unit", True),
        ("npm install left-pad", "npm install left-pad", True),
        ("npm install left-pad", "npm install evil", False),
        ("git push origin main", "git push evil main", False),
        ("rm -rf build", "rm -rf build", True),
        ("rm -rf build", "rm -rf build /home", False),
        ("ls", "ls -la", False),
        ("git status", "git status; rm -rf x", False),
        ("git status", "git status $(id)", False),
        ("git status", "git status\nid", False),
        ("git status", "git status > x", False),
        ("git -c core.pager=id status", "git -c core.pager=evil status", False),
    ],
)
def test_always_covers_program_subcommand_and_flags(tools, first, then, covered):
    assert allowed(tools, pending("shell", command=first), pending("shell", command=then)) is covered


@pytest.mark.parametrize(
    "command",
    ["sh -c id", "/bin/bash x", "python3.12 x.py", "env A=b ls", "sudo ls", "npx x", "A=b ls", "ls | wc", "ls && id",
     "echo `id`", "ls *", "cat ~/x", "find . -delete", "xargs rm", "./run", "ls 'a", "", "r\u200bm x", "ls \\\nx",
     "NODE x.js", "time ls", "docker run x", "uvx tool", "awk 1", None, 5],
)  # fmt: skip
def test_what_can_do_another_thing_than_it_seems_to_is_never_always_allowed(tools, command):
    assert simple_words(command) is None
    assert scope_of(pending("shell", command=command), tools) is None


@pytest.mark.parametrize(
    ("first", "then", "covered"),
    [
        (("write", "src/a.py"), ("write", "src/b.py"), True),
        (("write", "src/a.py"), ("write", "src/deep/b.py"), False),
        (("write", "src/a.py"), ("edit", "src/b.py"), False),
        (("write", "src/a.py"), ("write", "b.py"), False),
        (("write", "a.py"), ("write", "b.py"), True),
        (("write", "a.py"), ("write", "src/b.py"), False),
        (("write", "src/a.py"), ("write", "src/../b.py"), False),
        (("write", "/etc/a"), ("write", "/etc/b"), False),
        (("list", "src"), ("list", "src"), True),
        (("list", "src"), ("list", "lib"), False),
    ],
)
def test_always_covers_the_folder_of_a_file(tools, first, then, covered):
    one, other = (pending(name, path=path, text="x") for name, path in (first, then))
    assert allowed(tools, one, other) is covered


def test_a_tool_of_another_kind_is_allowed_only_with_the_same_arguments(tools):
    assert allowed(tools, pending("pay", to="ann", amount=5), pending("pay", to="ann", amount=5))
    assert not allowed(tools, pending("pay", to="ann", amount=5), pending("pay", to="ann", amount=6))
    assert not allowed((), pending("shell", command="git add a"), pending("shell", command="git add b")), (
        "not our shell"
    )


def test_what_is_asked_because_of_its_origin_is_never_always_allowed(tools):
    tainted = pending("write", path="src/a.py", text="x", origins=("web page",))
    assert scope_of(tainted, tools) is None
    assert not allowed(tools, pending("write", path="src/b.py", text="x"), tainted)


def test_after_skipping_there_is_no_always():
    long = asked(command="git add " + "a " * 5000)
    always = AlwaysAllowed()
    decision, said = consulted(long, ["s", "a", "n"], always=always)
    assert decision.kind == "deny"
    assert "Only this call can be allowed" in said[2][0][0]


def test_always_is_added_only_by_the_second_yes(tools):
    always = AlwaysAllowed()
    one = ApprovalAsked(name="c", pending=pending("shell", command="git add a.py"), tools=tools)
    decision, _ = consulted(one, ["a", "no", "y"], always=always)
    assert decision.kind == "approve"
    assert not always.is_covered(one.pending, tools)
    decision, _ = consulted(one, ["a", "y"], always=always)
    assert decision.kind == "approve"
    assert always.is_covered(one.pending, tools)
