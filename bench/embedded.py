"""What the embedded model gets right: fixed questions, temperature 0, an answer checked by a word it must have.

    python bench/embedded.py [--markdown]

Needs the extra `local` and the model's file: glidepath models pull smollm2.
"""

import argparse
import asyncio
import re

from glidepath import Agent, Limits, tool
from glidepath.models import LocalModel


@tool
async def weather(city: str) -> str:
    """Current weather of a city."""
    return f"17 degrees and foggy in {city}"


@tool
async def population(country: str) -> str:
    """How many people live in a country."""
    return f"{country}: 5,638,000 people"


@tool
async def read(path: str) -> str:
    """Read a file."""
    return {"notes.txt": "Buy milk."}.get(path, f"there is no file {path}")


@tool(name="list")
async def list_files(folder: str = ".") -> str:
    """List the files of a folder."""
    return f"{folder}: notes.txt, plan.md"


QUESTIONS = [  # what is asked, with which tools, and what a right answer must have
    ("What is the capital of France?", [], "paris"),
    ("What is 12 times 12?", [], "144"),
    ("Which planet is closest to the sun?", [], "mercury"),
    ("Translate 'good morning' into Spanish.", [], "buenos d"),
    ("Is Python an interpreted or a compiled language?", [], "interpreted"),
    ("How many days has a leap year?", [], "366"),
    ("Name the largest ocean.", [], "pacific"),
    ("Write the word 'glide' backwards.", [], "edilg"),
    ("What is the weather in Oslo?", [weather], "17|foggy"),
    ("What is the weather in Paris right now?", [weather], "17|foggy"),
    ("How many people live in Finland?", [population], "5,638,000"),
    ("Read the file notes.txt and tell me what it says.", [read], "milk"),
    ("What is in notes.txt?", [read, list_files], "milk"),
    ("Which files are in this folder?", [read, list_files], "plan.md"),
    ("Should I take an umbrella in Bergen? Look up the weather.", [weather, population], "17|foggy"),
]


async def ask() -> list[tuple[str, str, bool, str]]:
    found = []
    async with LocalModel() as model:
        for question, tools, needed in QUESTIONS:
            limits = Limits(max_iterations=4, max_tokens=6000, timeout=120)
            agent = Agent(model=model, tools=tools, limits=limits, temperature=0.0)
            result = await agent.run(question)
            right = re.search(needed, result.text, re.IGNORECASE) is not None
            found.append((question, ", ".join(one.name for one in tools) or "none", right, result.text))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--markdown", action="store_true", help="print the table of the page")
    options = parser.parse_args()
    found = asyncio.run(ask())
    if options.markdown:
        print("| question | tools | right? |\n|---|---|---|")
        for question, tools, right, _ in found:
            print(f"| {question} | {tools} | {'yes' if right else 'no'} |")
    else:
        for question, tools, right, text in found:
            print(f"{'right' if right else 'wrong'}  {question}  [{tools}]\n       {' '.join(text.split())[:160]}")
    print(f"\n{sum(right for _, _, right, _ in found)} of {len(found)} right")


if __name__ == "__main__":
    main()
