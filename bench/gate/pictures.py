"""Draw the pictures of the gate in docs/images from the real thing: Claude Code in a terminal, and its run in the deck.

    python bench/gate/pictures.py

Needs Claude Code (`python bench/gate/agents.py install claude-code`), rich, Playwright and Chromium.
"""

import asyncio
import io
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.async_api import async_playwright
from rich.console import Console

sys.path.insert(0, str(Path(__file__).parent))

from flight import Stage, run_command
from served import KEY, TOKEN, ServedProcess
from table import AGENTS

from glidepath.testing import ScriptedUpstream

IMAGES = Path(__file__).resolve().parents[2] / "docs" / "images"
TASK = "Count the steps, then report."
TYPED = (
    'glidepath gate run --max-budget-usd 0.50 -- claude -p "Count the steps, then report." --allowedTools Bash',
    "echo $?",
    "glidepath sessions list",
)


async def draw_terminal(folder):
    """What a person sees who types these lines."""
    async with ScriptedUpstream("loop", keep=0) as up:
        stage = Stage(AGENTS["claude-code"], folder, TASK, up.url, "k")
        command, env = stage.prepare(bare=False)
        gate = [
            sys.executable,
            "-m",
            "glidepath",
            "gate",
            "run",
            "--max-budget-usd",
            "0.50",
            "--upstream",
            up.url,
            "--",
        ]
        code, _ = await asyncio.to_thread(run_command, [*gate, *command], env, stage.folder, 200)
    listing = [sys.executable, "-m", "glidepath", "sessions", "list"]
    done = await asyncio.to_thread(subprocess.run, listing, env=env, capture_output=True, text=True, check=True)
    said = [(folder / name).read_text().strip() for name in ("stdout", "stderr")]
    console = Console(record=True, width=118, file=io.StringIO(), force_terminal=True)
    for typed, shown in zip(TYPED, ("\n".join(said), str(code), done.stdout.rstrip()), strict=True):
        console.print(f"[bold green]$[/] [bold]{typed}[/]", highlight=False)
        console.print(shown, markup=False, highlight=False)
    console.save_svg(str(IMAGES / "gate-claude-code.svg"), title="Claude Code behind the gate")


async def draw_deck(folder):
    """The same program with three sub-agents before `gate serve`, while it works."""
    limit = '[limits]\nmax_tokens = 400000\n[keys.ann]\nkey = "env:BENCH_KEY"\n'
    async with ScriptedUpstream("spawn:children=3", keep=0, pace=0.05) as up:
        with ServedProcess(up.url, more=limit) as gate:
            stage = Stage(AGENTS["claude-code"], folder, TASK, gate.url, KEY)
            command, env = stage.prepare(bare=True)
            flying = asyncio.create_task(asyncio.to_thread(run_command, command, env, stage.folder, 200))
            async with async_playwright() as playwright:
                browser = await playwright.chromium.launch(
                    executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
                )
                page = await browser.new_page(viewport={"width": 1280, "height": 800})
                await page.goto(f"{gate.url}/#token={TOKEN}")
                await page.wait_for_selector("[data-run]", timeout=60_000)
                await page.locator("[data-run]").first.dblclick()
                await page.keyboard.press("Enter")
                await page.wait_for_selector("text=claude-code/", timeout=60_000)
                await asyncio.sleep(4)
                await page.screenshot(path=str(IMAGES / "deck-gate.png"))
                await browser.close()
            await flying


async def main():
    for draw in (draw_terminal, draw_deck):
        with tempfile.TemporaryDirectory(prefix="gate-pictures-") as folder:
            await draw(Path(folder))


if __name__ == "__main__":
    asyncio.run(main())
