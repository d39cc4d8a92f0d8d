"""What a terminal shows, at 40, 80 and 200 columns, compared with what was looked at and kept."""

import re

import pytest

from .terminal import Terminal, compare

pytestmark = pytest.mark.process
WIDTHS = (40, 80, 200)


def folder_of(tmp_path):
    folder = tmp_path / "desk"
    folder.mkdir()
    (folder / "notes.txt").write_text("one\n")
    return folder


def model(name):
    return ("--model", f"python:flights:{name}")


@pytest.mark.parametrize("width", WIDTHS)
def test_run_in_flight_and_after_a_second_ctrl_c(tmp_path, width):
    argv = [
        "run",
        "what is here?",
        *model("waits"),
        "--workspace",
        str(folder_of(tmp_path)),
        "--max-budget-usd",
        "0.50",
        "--store",
        "none",
    ]
    with Terminal(width, tmp_path, *argv) as terminal:
        compare(f"run-{width}", settled(terminal.until("and in it", "2/50")))
        terminal.type("C-c")
        terminal.until("finishing up; Ctrl-C again to stop now")
        terminal.type("C-c")
        assert terminal.code() == 130
        shown = settled(terminal.until("cancelled: Ctrl-C twice"))
        estimated = re.sub(r"\d+ tokens (.) \$[\d.]+", r"N tokens \1 $N", shown)  # what a call that was cut is charged
        compare(f"run-stopped-{width}", estimated)


@pytest.mark.parametrize("width", WIDTHS)
def test_run_to_its_end(tmp_path, width):
    argv = ["run", "what is here?", *model("looks"), "--workspace", str(folder_of(tmp_path))]
    with Terminal(width, tmp_path, *argv) as terminal:
        assert terminal.code() == 0
        compare(f"run-done-{width}", settled(terminal.until("notes.txt", "tokens")))


def settled(shown):
    """The seconds a run really took are not the same every time; an estimate depends on how tools are described."""
    return re.sub(r"~\d+", "~N", re.sub(r"\d+:\d\d$", "0:00", shown, flags=re.MULTILINE))


def test_the_status_line_is_gone_at_the_end_and_colors_can_be_off(tmp_path):
    argv = ["run", "hi", *model("looks"), "--workspace", str(folder_of(tmp_path))]
    with Terminal(80, tmp_path, *argv, NO_COLOR="1") as terminal:
        assert terminal.code() == 0
        shown = terminal.screen(colors=True)
        assert "left" not in shown
        assert not re.search(r"\x1b\[[0-9;]*3[0-7]m", shown), "a color"
    with Terminal(81, tmp_path, *argv) as terminal:
        assert terminal.code() == 0
        assert re.search(r"\x1b\[[0-9;]*3[0-7]m", terminal.screen(colors=True))


def test_a_person_approves_a_call_at_the_terminal(tmp_path):
    desk = folder_of(tmp_path)
    argv = ["run", "go", *model("shell"), "--workspace", str(desk), "--tools", "shell"]
    with Terminal(80, tmp_path, *argv) as terminal:
        terminal.until("The agent wants to call shell", "echo from the shell > made.txt", "allow it?")
        terminal.type("y", "Enter")
        assert terminal.code() == 0
        terminal.until("Result: from the shell")
    assert (desk / "made.txt").exists()


def test_a_person_says_why_not(tmp_path):
    desk = folder_of(tmp_path)
    argv = ["run", "go", *model("shell"), "--workspace", str(desk), "--tools", "shell"]
    with Terminal(80, tmp_path, *argv) as terminal:
        terminal.until("allow it?")
        terminal.type("too dangerous", "Enter")
        assert terminal.code() == 0
        terminal.until("too dangerous", "Result:")
    assert not (desk / "made.txt").exists()


def test_ctrl_c_at_the_question_leaves_the_run_paused(tmp_path):
    argv = ["run", "go", *model("shell"), "--workspace", str(folder_of(tmp_path)), "--tools", "shell"]
    with Terminal(120, tmp_path, *argv) as terminal:
        terminal.until("allow it?")
        terminal.type("C-c")
        assert terminal.code() == 130
        shown = terminal.until("to continue: glidepath resume")
    assert "finishing up" not in shown  # nothing is in flight that could finish
    assert shown.count("waiting for a decision about") == 1


@pytest.mark.parametrize("width", WIDTHS)
def test_chat(tmp_path, width):
    argv = ["chat", *model("chat"), "--workspace", str(folder_of(tmp_path)), "--tools", "list,shell"]
    argv += ["--sandbox", "off"]  # whether this machine has one is not what is looked at
    with Terminal(width, tmp_path, *argv, height=30) as terminal:
        compare(f"chat-{width}", terminal.until("Ctrl-D", "ready"))
        terminal.type("what is here?", "Enter")
        compare(f"chat-answer-{width}", settled(terminal.until("notes.txt", "bold move", "ready")))
        terminal.type("run it", "Enter")
        compare(f"chat-approval-{width}", settled(terminal.until("y or a (always)", "your decision")))
        terminal.type("y", "Enter")
        terminal.until("It says: from the shell", "ready")
        terminal.type("go on", "Enter")
        compare(f"chat-flying-{width}", settled(terminal.until("This will take", "writing")))
        terminal.type("Escape")
        terminal.until("interrupted (Esc)", "ready")
        terminal.type("C-d")
        assert terminal.code() == 0


def test_on_a_terminal_the_last_line_says_how_to_go_on_and_it_does(tmp_path):
    argv = ["run", "what is here?", *model("waits"), "--workspace", str(folder_of(tmp_path))]
    with Terminal(200, tmp_path, *argv) as terminal:
        terminal.until("and in it")
        terminal.type("C-c")
        terminal.until("finishing up")
        terminal.type("C-c")
        assert terminal.code() == 130
        last = terminal.until("to continue: glidepath resume").strip().splitlines()[-1]
    assert re.fullmatch(r"to continue: glidepath resume session_\w+ --model python:flights:waits", last)
    assert (tmp_path / "data" / "glidepath" / "sessions.db").is_file()


def test_nothing_is_kept_by_whoever_says_so(tmp_path):
    argv = ["run", "what is here?", *model("looks"), "--workspace", str(folder_of(tmp_path)), "--store", "none"]
    with Terminal(80, tmp_path, *argv) as terminal:
        assert terminal.code() == 0
        assert "cannot be" not in terminal.until("tokens")
    assert not (tmp_path / "data").exists()


def test_a_data_folder_that_cannot_be_written_is_said_and_the_run_goes_on(tmp_path):
    (tmp_path / "data").write_text("not a folder")
    argv = ["run", "what is here?", *model("looks"), "--workspace", str(folder_of(tmp_path))]
    with Terminal(200, tmp_path, *argv) as terminal:
        assert terminal.code() == 0
        assert "this run cannot be resumed" in terminal.until("notes.txt", "tokens")
