"""Draw docs/images/chat.svg: the chat with a scripted model, so that the picture shows what the program shows.

python scripts/make_screenshot.py
"""

import asyncio
import sys
import tempfile
from pathlib import Path

from glidepath.apps.cli.chat.app import ChatApp
from glidepath.apps.cli.chat.chat_conversation import Conversation
from glidepath.apps.cli.cli_context import CliContext
from glidepath.apps.cli.layers import gather
from glidepath.apps.cli.parser import make_parser
from glidepath.messages import Usage
from glidepath.testing import ScriptedModel, call, hang, say

PICTURE = Path(__file__).resolve().parent.parent / "docs" / "images" / "chat.svg"
ANSWER = """\
Two rules changed this year:

- **leave** is 30 days, it was 28
- unused days now *expire in June*
"""


def model() -> ScriptedModel:
    return ScriptedModel(
        [
            call("grep", pattern="changed", path="handbook").with_text("I look it up in the handbook."),
            say(ANSWER),
            hang("Since you had 3 unused days, they are valid until June 30. "),
        ],
        name="claude-sonnet-4-5",
        price=("3", "15"),
        usage=Usage(input=2_400, output=310),
    )


async def draw(folder: Path) -> None:
    (folder / "handbook").mkdir()
    (folder / "handbook" / "leave.md").write_text("Leave changed from 28 to 30 days.\nExpiry changed to June 30.\n")
    argv = ["chat", "--model", "python:make_screenshot:model", "--max-budget-usd", "0.50", "--max-tokens", "200k"]
    world = CliContext(environ={}, folder=folder, now=lambda: 0.0)
    talk = Conversation(gather(make_parser(["chat"]).parse_args(argv), world), world)
    talk.model = "anthropic:claude-sonnet-4-5"
    app = ChatApp(talk)
    app.title = "glidepath chat"
    async with app.run_test(size=(84, 24)) as pilot:
        for text in ("Which leave rules changed this year?", "And my 3 unused days?"):
            app.query_one("#prompt").value = text  # type: ignore[attr-defined]
            await pilot.press("enter")
            for _ in range(100):
                await pilot.pause(0.03)
                if not talk.busy:
                    break
        PICTURE.parent.mkdir(exist_ok=True)
        PICTURE.write_text(app.export_screenshot(title="glidepath chat"), encoding="utf-8")
        await pilot.press("ctrl+d")


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent))
    with tempfile.TemporaryDirectory() as name:
        asyncio.run(draw(Path(name)))
