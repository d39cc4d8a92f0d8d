"""Models for the tests of the command line, named as python:flights:NAME."""

from glidepath.errors import RefusedError, RejectedError
from glidepath.messages import Usage
from glidepath.testing import ScriptedModel, call, fail, hang, refuse, say, truncated

PRICE = ("3", "15")
USED = Usage(input=200, output=20)  # whatever the tools are described as, the screens stay the same


def hello():
    return ScriptedModel([say("Hello from the script.")])


def looks():
    return ScriptedModel(
        [call("list", path=".").with_text("Let me look around.\n"), say("There is one file:\n\n- notes.txt")],
        price=PRICE,
        usage=USED,
    )


def waits():
    """Looks, then begins an answer that never ends: the screen stands still."""
    return ScriptedModel(
        [call("list", path=".").with_text("Let me look around.\n"), hang("I found one file, and in it ")],
        price=PRICE,
        usage=USED,
    )


def lands():
    """Hangs in a tool until the person asks for the end, then answers."""
    return ScriptedModel([call("shell", command="sleep 60; true")]).forever(say("This is what I have."))


def endless():
    return ScriptedModel().forever(
        lambda request: call("list", depth=len(request.messages)) if request.tools else say("Landed.")
    )


def talkative():
    """Answers whatever it is asked, again and again."""
    return ScriptedModel(max_output_tokens=300).forever(say("Yes. " * 30))


def stuck():
    return ScriptedModel().forever(call("list"))


def refuses():
    return ScriptedModel([refuse("I will not.")])


def policy():
    return ScriptedModel([fail(RefusedError("against the rules"))])


def rejects():
    return ScriptedModel([fail(RejectedError("bad request"))])


def cut():
    return ScriptedModel().forever(truncated("An answer without an"))


def shell():
    return ScriptedModel([call("shell", command="echo from the shell > made.txt; cat made.txt")]).forever(
        lambda request: say("Result: " + request.messages[-1].text)
    )


def many_lines():
    return ScriptedModel([say("line\n" * 20_000)])


MODEL = hello()
NOT_A_MODEL = 3


def crashes():
    raise OSError("no such thing")


def chat():
    return ScriptedModel(
        [
            call("list", path=".").with_text("Let me look around."),
            say("There is one file:\n\n- `notes.txt`\n\nA **bold** move."),
            call("shell", command="echo from the shell"),
            lambda request: say("It says: " + request.messages[-1].text),
            hang("This will take "),
        ],
        price=PRICE,
        usage=USED,
    )


def demo():
    return ScriptedModel([call("atlas", city="Lisbon"), say("The atlas says that Lisbon is the capital of Portugal.")])


def steers():
    return ScriptedModel([say("before \x1b[2J\x1b]0;title\x07 after")])


def long_shell():
    lines = "\n".join(f"# line {number}" for number in range(60))
    return ScriptedModel([call("shell", command=f"touch made.txt\n{lines}\n# the last line")]).forever(say("Done."))


def edits():
    """Writes a file, edits another one, then says so; again and again."""
    return ScriptedModel(
        [
            call("write", path="new.txt", content="one\ntwo\n"),
            call("edit", path="notes.txt", old="old line", new="new line"),
            say("Both are changed."),
            call("edit", path="notes.txt", old="new line", new="newest line"),
            say("Once more."),
        ]
    )


def echoes():
    """Answers with what it was told last."""
    return ScriptedModel().forever(lambda request: say("You said: " + request.messages[-1].text))


def instructed():
    """Answers with what it was instructed."""
    return ScriptedModel().forever(lambda request: say("I was told: " + request.system_prompt))


def spaced():
    """Answers with spaces that are not the usual one, and with marks that cannot be seen."""
    return ScriptedModel(
        [say("10\u00a0000\u202f\u20ac, \u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645, a\u200bb\u202e\x1b[2J.")]
    )


def writer():
    """Writes a file whenever it is told something, then repeats what it was told."""

    def answer(request):
        if request.messages[-1].role == "user":
            return call("write", path="made.txt", content="x\n")
        told = [one.text for one in request.messages if one.role == "user"][-1]
        return say("I was told: " + told)

    return ScriptedModel(name="writer").forever(answer)
