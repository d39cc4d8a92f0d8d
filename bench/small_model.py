"""How often the embedded model names what was asked for: alone, with one tool, with three workspace tools.

PYTHONPATH=src python bench/small_model.py         # needs glidepath[local]; the table in docs/running-without-a-key.md
PYTHONPATH=src python bench/small_model.py -v      # with every answer

An answer counts when it contains the expected word and, with tools, one was called. That is
generous: the rest may be wrong.
"""

import asyncio
import sys
import tempfile
from pathlib import Path

from glidepath import Agent, Limits, tool
from glidepath.models import LocalModel, pull
from glidepath.workspace import Workspace, workspace_tools

ALONE = [
    ("What is the capital of France?", "paris"),
    ("What is the opposite of hot?", "cold"),
    ("How many days are in a week?", "seven|7"),
    ("What color is a clear sky at noon?", "blue"),
    ("Which planet is the largest?", "jupiter"),
    ("What is 17 + 25?", "42"),
    ("Translate 'thank you' into French.", "merci"),
    ("Name one prime number between 20 and 30.", "23|29"),
]
WEATHER = [(f"What is the weather in {city}?", "18") for city in ("Paris", "Tokyo", "Lima", "Oslo")]
FILES = [
    ("Which files are in this folder?", "notes.txt"),
    ("What does notes.txt say?", "tuesday"),
    ("Which file contains the word TODO?", "calc.py"),
    ("Read calc.py. What is the name of its function?", "double"),
]


@tool
async def weather(city: str) -> str:
    """Current weather of a city."""
    return "18 degrees and sunny"


async def ask(model, question, words, tools):
    limits = Limits(max_iterations=4, max_tokens=8000, timeout=60, landing_tokens=128)
    settings = {"temperature": 0.0, "max_output_tokens": 128, "extras": {"cache_prompt": False}}
    result = await Agent(model=model, tools=tools, limits=limits, **settings).run(question)
    named = any(word in result.text.lower() for word in words.split("|")) and (result.tool_calls > 0 or not tools)
    if "-v" in sys.argv:
        print(f"  {'yes' if named else 'no'}: {question} -> {result.outcome.name} {result.text!r}"[:240])
    return named


async def main():
    pull("smollm2")
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "notes.txt").write_text("The meeting is on Tuesday.\n")
        (Path(folder) / "calc.py").write_text("def double(x):\n    return x + x  # TODO: numbers only\n")
        readers = workspace_tools(Workspace(folder), ["read", "list", "grep"])
        async with LocalModel() as model:
            for name, questions, tools in (
                ("no tools", ALONE, []),
                ("one tool with one argument", WEATHER, [weather]),
                ("`read`, `list` and `grep`", FILES, readers),
            ):
                named = [await ask(model, question, words, tools) for question, words in questions]
                print(f"| {name} | {sum(named)} of {len(named)} |")


if __name__ == "__main__":
    asyncio.run(main())
