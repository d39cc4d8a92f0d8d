"""The hand-written loop: what a careful person writes, with no limits, guards or events. All is divided by it."""

import json
import sqlite3
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel
from script import CHECKS, PROMPT, Script

NAME = "bare loop"
PACKAGES = ("pydantic",)
STATEMENT = "import asyncio, json"
STORE = "an insert and a commit per message, stdlib sqlite3, WAL"
EXTRAS = {"checks": "ten coroutines awaited before each model call"}


class Arguments(BaseModel):
    query: str
    limit: int
    tags: list[str]


@dataclass(slots=True)
class Delta:
    kind: str
    text: str
    call_id: str = ""


async def model(script: Script, _messages: list[dict]) -> AsyncIterator[Delta]:
    arguments = await script.next_call()
    for text in script.pieces():
        yield Delta("text", text)
    if arguments is not None:
        yield Delta("call", "lookup", script.call_id)
        yield Delta("arguments", arguments)


class Notebook(list):
    """Messages in memory, and in SQLite when there is a folder."""

    def __init__(self, folder: str | None) -> None:
        super().__init__()
        self.database = None
        if folder is not None:
            Path(folder).mkdir(parents=True)
            self.database = sqlite3.connect(Path(folder, "messages.db"), isolation_level=None)
            self.database.execute("PRAGMA journal_mode=WAL")
            self.database.execute("PRAGMA synchronous=NORMAL")
            self.database.execute("CREATE TABLE messages (body TEXT)")

    def append(self, message: dict) -> None:
        super().append(message)
        if self.database is not None:
            self.database.execute("INSERT INTO messages VALUES (?)", (json.dumps(message),))

    def __del__(self) -> None:
        if self.database is not None:
            self.database.close()


async def agent(script: Script, checks: list) -> AsyncIterator[str]:
    async def lookup(arguments: Arguments) -> str:
        return await script.lookup(arguments.query, arguments.limit, arguments.tags)

    tools = {"lookup": (Arguments, lookup)}
    messages = Notebook(script.folder)
    messages.append({"role": "user", "content": PROMPT})
    while True:
        for check in checks:
            await check(messages)
        text: list[str] = []
        calls: list[dict] = []
        async for delta in model(script, messages):
            if delta.kind == "text":
                text.append(delta.text)
                yield delta.text
            elif delta.kind == "call":
                calls.append({"id": delta.call_id, "name": delta.text, "arguments": ""})
            else:
                calls[-1]["arguments"] += delta.text
        messages.append({"role": "assistant", "content": "".join(text), "tool_calls": calls})
        if not calls:
            return
        for call in calls:
            schema, function = tools[call["name"]]
            try:
                result = await function(schema.model_validate_json(call["arguments"]))
            except ValueError as error:
                result = f"error: {error}"
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})


async def play(script: Script) -> None:
    async def check(_messages: list[dict]) -> None:
        script.checked += 1

    async for text in agent(script, [check] * CHECKS if script.extras else []):
        script.saw(text)
