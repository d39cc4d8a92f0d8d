"""The control group: honest runs that look a little like loops. No guard may nudge, narrow or land any of them."""

# ruff: noqa: ARG001 - guards look at the arguments of these tools

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

from glidepath.testing.specimens.specimen import ANSWER, Moment, Specimen
from glidepath.testing.turns import Turn, call, calls, say
from glidepath.tools import Tool, ToolResult, tool


class _Honest(Specimen):
    """Works through its steps with its own tools, then answers."""

    family = "honest"
    honest = True
    succeeds = True

    def __init__(self) -> None:
        self._steps = self.steps()
        self._tools = self.tools()
        self._names = {one.name for one in self._tools}

    def reply(self, moment: Moment) -> Turn:
        """The next step; the answer when it is done or told to finish."""
        offered = {one.name for one in moment.request.tools}
        return say(ANSWER) if moment.told or not self._names & offered else next(self._steps, say(ANSWER))

    def steps(self) -> Iterator[Turn]:
        """What it does, step after step."""
        raise NotImplementedError


class ArchivesMail(_Honest):
    """Archives thirty mails, one after the other; the tool says "ok" each time."""

    def steps(self) -> Iterator[Turn]:
        """Thirty mails."""
        return iter([call("archive", mail_id=number) for number in range(30)])

    def tools(self) -> tuple[Tool, ...]:
        """A tool that acknowledges."""

        async def archive(mail_id: int) -> str:
            return "ok"

        return (tool(archive, description="Archive a mail."),)


class WritesFiles(_Honest):
    """Writes twelve files with a tool that returns nothing."""

    batch = 1

    def steps(self) -> Iterator[Turn]:
        """Twelve files, `batch` at a time."""
        files = [call("write_file", path=f"src/part_{number}.py", text="pass") for number in range(12 * self.batch)]
        return iter([calls(*files[at : at + self.batch]) for at in range(0, len(files), self.batch)])

    def tools(self) -> tuple[Tool, ...]:
        """A tool without an answer."""

        async def write_file(path: str, text: str) -> None:
            return None

        return (tool(write_file, description="Write a file."),)


class WritesFilesInBatches(WritesFiles):
    """Writes sixty files, five in every step, with a tool that returns nothing."""

    batch = 5


class RunsSilentCommands(_Honest):
    """Sets up a machine with fifteen shell commands, none of which prints anything."""

    def steps(self) -> Iterator[Turn]:
        """Fifteen commands."""
        return iter([call("run_command", command=f"mkdir -p /srv/part{number}") for number in range(15)])

    def tools(self) -> tuple[Tool, ...]:
        """A shell that has nothing to say."""

        async def run_command(command: str) -> str:
            return ""

        return (tool(run_command, description="Run a shell command."),)


class EditsAndTests(_Honest):
    """Edits and runs the tests, eight rounds; they fail in the same way until the last."""

    def steps(self) -> Iterator[Turn]:
        """Eight rounds."""
        edits = [call("edit_file", path="app.py", text=f"version {number}") for number in range(8)]
        return iter([step for edit in edits for step in (edit, call("run_tests"))])

    def tools(self) -> tuple[Tool, ...]:
        """An editor that says "ok", and tests that say the same until they pass."""
        rounds = count(1)

        async def edit_file(path: str, text: str) -> str:
            return "ok"

        async def run_tests() -> str:
            return "1 failed: test_total (expected 3, got 2)" if next(rounds) < 8 else "12 passed"

        return tool(edit_file, description="Edit a file."), tool(run_tests, description="Run the tests.")


class EditsAndTestsInAShell(_Honest):
    """Does everything in one shell: looks, edits twice, builds, runs the tests, which fail the same way four times."""

    def steps(self) -> Iterator[Turn]:
        """Four rounds of five commands."""
        for number in range(4):
            for command in (f"sed -n {number}p app.py", f"sed -i {number}d app.py", f"patch < {number}.diff"):
                yield call("run_command", command=command)
            yield call("run_command", command=f"make build-{number}")
            yield call("run_command", command="make test")

    def tools(self) -> tuple[Tool, ...]:
        """A shell."""

        async def run_command(command: str) -> str:
            return "FAILED test_total: expected 3, got 2" if command == "make test" else f"{command}: done"

        return (tool(run_command, description="Run a shell command."),)


class TriesDifferentFixes(_Honest):
    """A command fails four times, each time with a different message; then it works."""

    def steps(self) -> Iterator[Turn]:
        """Five attempts, each another command, twice over."""
        return iter([call("run_command", command=f"deploy --attempt {number}") for number in range(10)])

    def tools(self) -> tuple[Tool, ...]:
        """A shell whose commands fail."""
        rounds = count(1)

        async def run_command(command: str) -> ToolResult:
            number = next(rounds)
            failed = number % 5 != 0
            return ToolResult(f"line {number}: no" if failed else f"deployed {number}", is_error=failed)

        return (tool(run_command, description="Run a shell command."),)


class RetriesUntilItWorks(_Honest):
    """Fetches six pages; each one times out twice and works the third time."""

    def steps(self) -> Iterator[Turn]:
        """Every page three times."""
        return iter([call("fetch_page", url=f"https://example.com/{number // 3}") for number in range(18)])

    def tools(self) -> tuple[Tool, ...]:
        """A page that comes at the third attempt."""
        rounds = count(1)

        async def fetch_page(url: str) -> str:
            if next(rounds) % 3:
                raise TimeoutError("the server did not answer")
            return f"the text of {url}"

        return (tool(fetch_page, description="Fetch a page."),)


class PollsAJob(_Honest):
    """Asks forty times whether a job is done, with a tool that is marked as polling."""

    def steps(self) -> Iterator[Turn]:
        """Forty questions."""
        return iter([call("job_status", job=7)] * 40)

    def tools(self) -> tuple[Tool, ...]:
        """A job that takes its time."""

        async def job_status(job: int) -> str:
            return "running"

        return (tool(job_status, description="Ask how a job is doing.", polling=True),)


class PressesKeys(_Honest):
    """Presses the same key twenty times; the screen shows another line each time."""

    def steps(self) -> Iterator[Turn]:
        """Twenty times the same call."""
        return iter([call("press", key="down")] * 20)

    def tools(self) -> tuple[Tool, ...]:
        """A screen that moves."""
        lines = count(1)

        async def press(key: str) -> str:
            return f"> line {next(lines)}"

        return (tool(press, description="Press a key."),)


class ReadsPages(_Honest):
    """Reads twenty pages of a list; three in the middle and the last are empty."""

    def steps(self) -> Iterator[Turn]:
        """Twenty pages."""
        return iter([call("list_page", page=number) for number in range(20)])

    def tools(self) -> tuple[Tool, ...]:
        """Pages."""

        async def list_page(page: int) -> Any:
            return [] if page in (7, 8, 9, 19) else [f"entry {page}.{row}" for row in range(3)]

        return (tool(list_page, description="List a page of entries.", read_only=True),)


class FindsNothingAtFirst(_Honest):
    """Searches for nine words without a hit, then finds the tenth; the search is marked read-only."""

    def steps(self) -> Iterator[Turn]:
        """Ten words."""
        return iter([call("search_notes", word=f"word {number}") for number in range(10)])

    def tools(self) -> tuple[Tool, ...]:
        """A search that knows one word."""

        async def search_notes(word: str) -> str:
            return "found it" if word == "word 9" else "no hits"

        return (tool(search_notes, description="Search the notes.", read_only=True),)
