"""Asking a real model, and looking at what its server does."""

import asyncio
import json
import os
import time
import urllib.request
from pathlib import Path

from glidepath.messages import StreamEnd, TextDelta, ToolCallDelta, UserMessage
from glidepath.models import ModelRequest, ToolSpec

WEATHER = ToolSpec(
    "weather",
    "Current weather of a city.",
    {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"], "additionalProperties": False},
)
ALONE = {"cache_prompt": False}  # an answer must not depend, in its last bits, on what was asked before
ENDLESS = {"ignore_eos": True}  # it writes until it is stopped


def request(prompt="Say hello.", **settings):
    messages = settings.pop("messages", (UserMessage(prompt),))
    extras = {**ALONE, **settings.pop("extras", {})}
    return ModelRequest(messages=messages, extras=extras, **{"temperature": 0.0, "max_output_tokens": 40, **settings})


async def collect(model, asked):
    return [delta async for delta in model.stream(asked)]


def deltas(model, prompt="Say hello.", **settings):
    """Everything one request streams; the end is last and there is one."""
    found = asyncio.run(collect(model, request(prompt, **settings)))
    assert [type(delta) for delta in found].count(StreamEnd) == 1
    assert type(found[-1]) is StreamEnd
    return found


def text(found):
    return "".join(delta.text for delta in found if isinstance(delta, TextDelta))


def call(found):
    """Name and arguments of the one call."""
    pieces = [delta for delta in found if isinstance(delta, ToolCallDelta)]
    assert {piece.index for piece in pieces} == {0}
    assert pieces[0].id
    return pieces[0].name, "".join(piece.arguments for piece in pieces)


def busy(model):
    """How many calls the server is working on now."""
    address = asyncio.run(model._server.address())
    asked = urllib.request.Request(f"http://127.0.0.1:{address.port}/slots")
    asked.add_header("Authorization", f"Bearer {address.key}")
    with urllib.request.urlopen(asked, timeout=10) as reply:
        return sum(slot["is_processing"] for slot in json.load(reply))


def soon(condition, seconds=5.0):
    """Whether something becomes true while real time passes."""
    until = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True


def running(pid):
    """Whether a process lives; one that is dead and not yet buried does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def begun(model):
    """The process id of a server that is about to start."""
    while (pid := model.pid) is None:  # noqa: ASYNC110 - nobody sets an event for this
        await asyncio.sleep(0)
    return pid


def gone(pid, seconds=5.0):
    return soon(lambda: not running(pid), seconds)


def kill(pid, number=9):
    os.kill(pid, number)
