"""What an allow rule covers runs exactly the program named, once, with these words: tried in real shells."""

import os
import shutil
import subprocess

import pytest
from hypothesis import HealthCheck, example, given, settings, strategies as st

from glidepath import Rules
from glidepath.guards.approvals import decide, read_rules, simple_words

PROGRAMS = ("npm", "git", "cat", "rm", "evil")
RULES = read_rules(
    Rules(
        allow=[
            "shell(npm test *)",
            "shell(npm test * --silent)",
            "shell(git log * -n 5)",
            "shell(git push --dry-run)",
            "shell(cat docs/*.md)",
            "shell(cat *)",
        ]
    )
)
SHELLS = [path for path in map(shutil.which, ("sh", "bash", "zsh", "ksh", "busybox")) if path]
RECORDER = """#!/bin/sh
printf '%s\\0' "${0##*/}" "$@" >> "$LOG"
printf '\\1' >> "$LOG"
"""
PIECES = st.sampled_from(
    [*PROGRAMS, "test", "log", "push", "-n", "5", "--silent", "--dry-run", "docs/a.md", "--", "-x", " ", "  ", "\t",
     "\n",
     ";", "&&", "|", "&", "$", "$(", ")", "`", "(", "{", "}", "<", ">", "'", '"', "\\", "*", "?", "[", "]", "~", "!",
     "#", "=", "A=", "\r", "\x0b", "\x0c", "\xa0", "\u2028", "\u200b", "$IFS", "if", "time", "exec", "/", ".", "..",
     "^", "%"]
)  # fmt: skip
COMMANDS = st.one_of(
    st.lists(PIECES, max_size=8).map(" ".join),
    st.lists(PIECES, max_size=12).map("".join),
    st.tuples(st.sampled_from(["npm test", "git log -n 5", "cat docs/a.md", "cat"]), st.lists(PIECES, max_size=5)).map(
        lambda pair: f"{pair[0]} {''.join(pair[1])}"
    ),
    st.tuples(st.sampled_from(["npm test ", "cat "]), st.text(max_size=8)).map("".join),
)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    home = tmp_path_factory.mktemp("programs")
    for name in PROGRAMS:
        (home / name).write_text(RECORDER)
        (home / name).chmod(0o755)
    return home


def run(shell, command, place):
    """The programs that ran, each with its words."""
    log = place / "log"
    log.unlink(missing_ok=True)
    argv = [shell, "sh", "-c", command] if shell.endswith("busybox") else [shell, "-c", command]
    environment = {"PATH": f"{place}:/usr/bin:/bin", "LOG": str(log), "LANG": "C.UTF-8"}
    subprocess.run(
        argv, env=environment, cwd=place, capture_output=True, timeout=10, stdin=subprocess.DEVNULL, check=False
    )
    if not log.exists():
        return []
    records = log.read_bytes().split(b"\1")[:-1]
    return [tuple(os.fsdecode(word) for word in record.split(b"\0")[:-1]) for record in records]


def is_allowed(command):
    found = decide(RULES, "shell", None, {"command": command}, "command")
    return found is not None and found.verdict == "allow"


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(command=COMMANDS)
@example(command="npm test unit 'two words' \"three\"")
@example(command="cat docs/a.md")
@example(command="git log -n 5 src")
def test_what_is_allowed_runs_the_program_named_and_nothing_else(place, command):
    before = {one.name for one in place.iterdir()}
    if is_allowed(command):
        words = simple_words(command)
        for shell in SHELLS:
            assert run(shell, command, place) == [words], (shell, command)
        assert words[0] in ("npm", "git", "cat")
        assert {one.name for one in place.iterdir()} <= {*before, "log"}, "a file was made"


def test_the_examples_are_allowed_so_that_the_property_is_about_something(place):
    said = ["npm test unit 'two words' \"three\"", "cat docs/a.md", "git log -n 5 src", "npm test a --silent"]
    assert [is_allowed(command) for command in said] == [True] * 4
    assert run("/bin/sh", "npm test; rm x", place) == [("npm", "test"), ("rm", "x")], "the recorder sees both"


@pytest.mark.slow
@settings(max_examples=20_000, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(command=COMMANDS)
def test_many_commands_run_nothing_else(place, command):
    if is_allowed(command):
        for shell in SHELLS:
            assert run(shell, command, place) == [simple_words(command)], (shell, command)
