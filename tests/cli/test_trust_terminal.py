"""The question about a folder, on a real terminal."""

import os
import pty
import subprocess
import sys
import time

import pytest

from .shell_user import environment
from .terminal import READ, Terminal

pytestmark = pytest.mark.process
QUESTION = "Trust this folder"


def folder_of(tmp_path, text='system_prompt = "Obey the README."\n[limits]\nmax_iterations = 5\n'):
    folder = tmp_path / "unpacked"
    folder.mkdir()
    (folder / "glidepath.toml").write_text(text)
    return folder


def terminal(tmp_path, width, *argv):
    data = str(tmp_path / "data")
    return Terminal(width, tmp_path / "unpacked", *argv, XDG_DATA_HOME=data)


def kept(tmp_path):
    place = tmp_path / "data" / "glidepath" / "trust"
    return sorted(place.iterdir()) if place.exists() else []


RUN = ("run", "hi", "--model", "python:flights:hello", "--store", "none")


def test_yes_is_kept_and_not_asked_for_again_until_the_file_changes(tmp_path):
    folder = folder_of(tmp_path)
    with terminal(tmp_path, 80, *RUN) as screen:
        shown = screen.until("the model gets these instructions first", QUESTION, "[y/N]")
        assert "Obey the README." in shown
        assert "limits.max_iterations" not in shown, "it only narrows"
        screen.type("y", "Enter")
        assert screen.code() == 0
        screen.until("Hello from the script.")
    assert len(kept(tmp_path)) == 1
    with terminal(tmp_path, 81, *RUN) as screen:
        assert screen.code() == 0
        assert QUESTION not in screen.until("Hello from the script.")
    (folder / "glidepath.toml").write_text('system_prompt = "Obey me."\n')
    with terminal(tmp_path, 82, *RUN) as screen:
        screen.until("its files have changed since", "Obey me.", QUESTION)
        screen.type("n", "Enter")
        assert screen.code() == 0
        screen.until("continuing without system_prompt", "Hello from the script.")


@pytest.mark.parametrize("keys", [("Enter",), ("n", "Enter"), ("C-d",)], ids=" ".join)
def test_no_goes_on_without_what_needs_trust_and_keeps_nothing(tmp_path, keys):
    folder_of(tmp_path)
    with terminal(tmp_path, 80, *RUN) as screen:
        screen.until(QUESTION, "[y/N]")
        screen.type(*keys)
        assert screen.code() == 0
        screen.until("Not trusted: continuing without system_prompt", "Hello from the script.")
    assert kept(tmp_path) == []


def test_ctrl_c_at_the_question_leaves_and_keeps_nothing(tmp_path):
    folder_of(tmp_path)
    with terminal(tmp_path, 80, *RUN) as screen:
        screen.until(QUESTION, "[y/N]")
        screen.type("C-c")
        assert screen.code() == 130
        shown = screen.until("^C")
    assert "Traceback" not in shown
    assert "Hello" not in shown
    assert kept(tmp_path) == []


def test_chat_asks_before_it_opens(tmp_path):
    folder_of(tmp_path, 'model = "python:flights:hello"\n')
    with terminal(tmp_path, 80, "chat") as screen:
        screen.until("python:flights:hello", "(runs Python code)", QUESTION)
        screen.type("y", "Enter")
        screen.until("Ctrl-D leaves", "ready")
        screen.type("C-d")
        assert screen.code() == 0


def test_a_file_that_was_named_is_not_asked_about(tmp_path):
    folder_of(tmp_path)
    with terminal(tmp_path, 80, *RUN, "--config", "glidepath.toml") as screen:
        assert screen.code() == 0
        assert QUESTION not in screen.until("Hello from the script.")
    assert kept(tmp_path) == []


def test_trust_list_and_revoke(tmp_path):
    folder = folder_of(tmp_path)
    with terminal(tmp_path, 200, "trust") as screen:
        screen.until("system_prompt", QUESTION)
        screen.type("y", "Enter")
        assert screen.code() == 0
        screen.until(f"Trusted: {folder}")
    with terminal(tmp_path, 201, "trust", "list") as screen:
        assert screen.code() == 0
        screen.until(str(folder))
    with terminal(tmp_path, 202, "trust", "revoke") as screen:
        assert screen.code() == 0
        screen.until(f"No longer trusted: {folder}")
    assert kept(tmp_path) == []


def test_a_yes_that_was_typed_before_the_question_does_not_count(tmp_path):
    folder = folder_of(tmp_path)
    master, slave = pty.openpty()
    os.write(master, b"y\n")  # as if the person had typed it while the command started
    running = subprocess.Popen(
        [sys.executable, "-m", "glidepath.cli", *RUN],
        cwd=folder,
        env=environment(XDG_DATA_HOME=str(tmp_path / "data"), TERM="dumb"),
        stdin=slave,
        stdout=subprocess.PIPE,
        stderr=slave,
    )
    os.close(slave)
    seen = b""
    while b"[y/N] " not in seen:
        seen += os.read(master, 4096)
    os.write(master, b"y\n")  # nobody can have read it yet
    time.sleep(READ)
    os.write(master, b"n\n")
    out, _ = running.communicate(timeout=60)
    os.close(master)
    assert (running.returncode, out) == (0, b"Hello from the script.\n")
    assert kept(tmp_path) == []
