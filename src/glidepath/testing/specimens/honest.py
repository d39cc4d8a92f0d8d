"""The control group: honest runs that look a little like loops. No guard may nudge, narrow or land any of them."""

# ruff: noqa: ARG001 - guards look at the arguments of these tools

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from typing import Any, ClassVar

from glidepath.testing.specimens.specimen import ANSWER, Moment, Specimen, specimen
from glidepath.testing.turns import Turn, call, calls, say
from glidepath.tools import Tool, ToolResult, tool


class _Honest(Specimen):
    """Works through its steps with its own tools, then answers."""

    family = "honest"
    honest = True
    succeeds = True
    steps: ClassVar[Sequence[Turn]]
    own: ClassVar[Sequence[Tool | Callable[[], Tool]]]
    """Its tools; one with a memory is a function that makes a fresh one for every flight."""

    def __init__(self) -> None:
        self._steps = iter(self.steps)
        self._tools = tuple([one if isinstance(one, Tool) else one() for one in self.own])

    def reply(self, moment: Moment) -> Turn:
        """The next step; the answer when it is done or told to finish."""
        offered = {one.name for one in moment.request.tools}
        able = any(one.name in offered for one in self._tools)
        return next(self._steps, say(ANSWER)) if able and not moment.told else say(ANSWER)

    def tools(self) -> tuple[Tool, ...]:
        return self._tools


@tool
async def archive(mail_id: int) -> str:
    """Archive a mail."""
    return "ok"


@tool
async def write_file(path: str, text: str) -> None:
    """Write a file."""


@tool
async def edit_file(path: str, text: str) -> str:
    """Edit a file."""
    return "ok"


@tool(polling=True)
async def job_status(job: int) -> str:
    """Ask how a job is doing."""
    return "running"


@tool(read_only=True)
async def list_page(page: int) -> Any:
    """List a page of entries."""
    return [] if page in (7, 8, 9, 19) else [f"entry {page}.{row}" for row in range(3)]


@tool(read_only=True)
async def search_notes(word: str) -> str:
    """Search the notes."""
    return "found it" if word == "word 9" else "no hits"


def _shell(answer: Callable[[str], Any]) -> Tool:
    async def run_command(command: str) -> Any:
        return answer(command)

    return tool(run_command, description="Run a shell command.")


def _answer_build(command: str) -> str:
    return "FAILED test_total: expected 3, got 2" if command == "make test" else f"{command}: done"


def _answer_deploy(command: str) -> ToolResult:
    number = int(command.rpartition(" ")[2]) + 1
    failed = number % 5 != 0
    return ToolResult(f"line {number}: no" if failed else f"deployed {number}", is_error=failed)


def _tests() -> Tool:
    rounds = count(1)

    async def run_tests() -> str:
        return "1 failed: test_total (expected 3, got 2)" if next(rounds) < 8 else "12 passed"

    return tool(run_tests, description="Run the tests.")


def _pages() -> Tool:
    rounds = count(1)

    async def fetch_page(url: str) -> str:
        if next(rounds) % 3:
            raise TimeoutError("the server did not answer")
        return f"the text of {url}"

    return tool(fetch_page, description="Fetch a page.")


def _screen() -> Tool:
    lines = count(1)

    async def press(key: str) -> str:
        return f"> line {next(lines)}"

    return tool(press, description="Press a key.")


def _files(number: int) -> list[Turn]:
    return [call("write_file", path=f"src/part_{number}.py", text="pass") for number in range(number)]


def _commands(*commands: str) -> list[Turn]:
    return [call("run_command", command=command) for command in commands]


def _round(number: int) -> list[Turn]:
    edits = (f"sed -n {number}p app.py", f"sed -i {number}d app.py", f"patch < {number}.diff")
    return _commands(*edits, f"make build-{number}", "make test")


def _run(name: str, does: str, steps: Sequence[Turn], *own: Tool | Callable[[], Tool]) -> type[Specimen]:
    return specimen(name, does, _Honest, steps=steps, own=own)


HONEST = (
    _run(
        "archives_mail",
        'Archives thirty mails, one after the other; the tool says "ok" each time.',
        [call("archive", mail_id=number) for number in range(30)],
        archive,
    ),
    _run("writes_files", "Writes twelve files with a tool that returns nothing.", _files(12), write_file),
    _run(
        "writes_files_in_batches",
        "Writes sixty files, five in every step, with a tool that returns nothing.",
        [calls(*_files(60)[at : at + 5]) for at in range(0, 60, 5)],
        write_file,
    ),
    _run(
        "runs_silent_commands",
        "Sets up a machine with fifteen shell commands, none of which prints anything.",
        _commands(*[f"mkdir -p /srv/part{number}" for number in range(15)]),
        _shell(lambda _: ""),
    ),
    _run(
        "edits_and_tests",
        "Edits and runs the tests, eight rounds; they fail in the same way until the last.",
        [
            step
            for number in range(8)
            for step in (call("edit_file", path="app.py", text=f"version {number}"), call("run_tests"))
        ],
        edit_file,
        _tests,
    ),
    _run(
        "edits_and_tests_in_a_shell",
        "Does everything in one shell: looks, edits twice, builds, runs the tests, which fail the same way four times.",
        [step for number in range(4) for step in _round(number)],
        _shell(_answer_build),
    ),
    _run(
        "tries_different_fixes",
        "A command fails four times, each time with a different message; then it works.",
        _commands(*[f"deploy --attempt {number}" for number in range(10)]),
        _shell(_answer_deploy),
    ),
    _run(
        "retries_until_it_works",
        "Fetches six pages; each one times out twice and works the third time.",
        [call("fetch_page", url=f"https://example.com/{number // 3}") for number in range(18)],
        _pages,
    ),
    _run(
        "polls_a_job",
        "Asks forty times whether a job is done, with a tool that is marked as polling.",
        [call("job_status", job=7)] * 40,
        job_status,
    ),
    _run(
        "presses_keys",
        "Presses the same key twenty times; the screen shows another line each time.",
        [call("press", key="down")] * 20,
        _screen,
    ),
    _run(
        "reads_pages",
        "Reads twenty pages of a list; three in the middle and the last are empty.",
        [call("list_page", page=number) for number in range(20)],
        list_page,
    ),
    _run(
        "finds_nothing_at_first",
        "Searches for nine words without a hit, then finds the tenth; the search is marked read-only.",
        [call("search_notes", word=f"word {number}") for number in range(10)],
        search_notes,
    ),
)
