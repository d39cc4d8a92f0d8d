"""Models for the tests of teams on the command line, named as python:crews:NAME."""

from glidepath.errors import RejectedError
from glidepath.testing import ScriptedModel, fail, hang, say


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
