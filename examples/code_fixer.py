"""An agent that fixes a bug in a folder: it looks, edits and checks, and cannot leave the folder.

The check is a tool of ours and not a shell: an agent that needs one program does not need all of them. It is the check,
too, that says whether the work is done, not the model.
"""

import asyncio
import sys
import tempfile
from pathlib import Path

from glidepath import Agent, Limits, tool
from glidepath.events import ToolEnded, ToolStarted
from glidepath.testing import ScriptedModel, call, say
from glidepath.workspace import Workspace, workspace_tools

BROKEN = "def average(numbers):\n    return sum(numbers) / (len(numbers) - 1)\n"
CHECK = "from stats import average\nassert average([1, 2, 3]) == 2, average([1, 2, 3])\nprint('all checks pass')\n"

SCRIPT = [  # what a model would do; the last three turns follow from what it reads
    call("list"),
    call("run_checks"),
    call("read", path="stats.py"),
    call("edit", path="stats.py", old="(len(numbers) - 1)", new="len(numbers)"),
    call("edit", path="../../etc/passwd", old="root", new="me"),  # it may try
    call("run_checks"),
    say("The average divided by one too few. Fixed, and the checks pass."),
]


def checks_of(folder: Path):
    @tool(exclusive=True, timeout=20)  # not while a file is being edited
    async def run_checks() -> str:
        """Run the project's checks."""
        process = await asyncio.create_subprocess_exec(
            sys.executable, "check.py", cwd=folder, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        try:
            output, _ = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()  # the run was stopped, so is what it started
        return output.decode().strip().splitlines()[-1]

    return run_checks


async def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "stats.py").write_text(BROKEN)
        (folder / "check.py").write_text(CHECK)
        agent = Agent(
            model=ScriptedModel(SCRIPT),
            tools=[*workspace_tools(Workspace(folder), ["list", "read", "grep", "edit"]), checks_of(folder)],
            system_prompt="Fix the bug. Run the checks before and after.",
            limits=Limits(max_iterations=20, max_tool_calls=40, timeout=120),
        )
        async with agent.stream("The average is wrong.") as stream:
            async for event in stream:
                if isinstance(event, ToolStarted):
                    print(f"{event.tool_name} {event.arguments.get('path', '')}")
                elif isinstance(event, ToolEnded):
                    print(f"    {event.result.text.splitlines()[-1][:74]}")
        print(f"\n{stream.result.outcome.name}: {stream.result.text}")
        print((folder / "stats.py").read_text())


if __name__ == "__main__":
    asyncio.run(main())
