"""Models for the tests of teams on the command line, named as python:crews:NAME."""

from pathlib import Path

from glidepath import tool
from glidepath.errors import RejectedError
from glidepath.testing import ScriptedModel, call, fail, hang, say


def worker():
    """Says which step it did; names its sources only when it is told to."""

    def answer(request):
        prompt = request.messages[0].text
        name = prompt.partition("Your step (")[2].partition(")")[0]
        return say(f"{name} with sources" if "deal with every point" in prompt else f"{name} done")

    return ScriptedModel(price=("3", "15")).forever(answer)


def broken():
    return ScriptedModel().forever(fail(RejectedError("no")))


def hangs():
    return ScriptedModel().forever(hang())


def planner():
    return ScriptedModel([say('{"steps": [{"id": "only", "description": "do it all"}]}')])


def careful():
    """Wants to publish, then says what came of it."""

    def answer(request):
        last = request.messages[-1]
        return say(f"It is {last.content}.") if last.role == "tool_result" else call("publish", text="Bees dance.")

    return ScriptedModel(price=("3", "15")).forever(answer)


@tool(requires_approval=True)
async def publish(text: str) -> str:
    """Publish a text."""
    with Path("published.txt").open("a", encoding="utf-8") as file:  # noqa: ASYNC230 - a test
        file.write(f"{text}\n")
    return "out"


def wicked():
    """Tries to steer the terminal."""
    return ScriptedModel(price=("3", "15")).forever(say("\x1b]0;owned\x07sources \x1b[2Jhere"))
