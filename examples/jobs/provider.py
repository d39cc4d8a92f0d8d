"""A provider without a key: a server on this machine that speaks OpenAI's Responses and follows a script.

It has no memory: what it answers depends on the messages and tools it is sent, so that every framework gets the same.
The scripts are in `scripts.py`.
"""

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Asked:
    """What a request says, whichever framework sent it."""

    system: str = ""
    said: list[str] = field(default_factory=list)
    """What the user and the agent said, in order; calls and their results are apart."""
    users: list[str] = field(default_factory=list)
    called: list[str] = field(default_factory=list)
    results: list[str] = field(default_factory=list)
    """Of the calls since the user spoke last."""
    tools: list[str] = field(default_factory=list)
    body: dict[str, Any] = field(default_factory=dict)

    @property
    def last(self) -> str:
        return self.users[-1]

    @property
    def turns(self) -> int:
        """How often the agent has spoken or called."""
        return len(self.said) - len(self.users) + len(self.called)

    @property
    def fields(self) -> set[str]:
        """The fields of the answer that is asked for; empty for a text."""
        schemas = [tool["parameters"] for tool in self.body.get("tools") or [] if tool.get("name") == OUTPUT]
        schemas.append(self.body.get("text", {}).get("format", {}).get("schema", {}))
        return set(schemas[0].get("properties", {}))

    def argument(self, name: str) -> str | None:
        """The first parameter of a tool: frameworks name it differently."""
        tool = next(tool for tool in self.body["tools"] if tool.get("name") == name)
        return next(iter(tool["parameters"].get("properties") or ()), None)


@dataclass
class Call:
    name: str
    arguments: dict[str, Any]


@dataclass
class Given:
    """A typed answer."""

    value: Any


Reply = str | Call | Given
Script = Callable[[Asked], Reply]
PACE = 0.002  # seconds from one piece of a text to the next
OUTPUT = "final_result"  # the tool with which Pydantic AI takes a typed answer


def read(body: dict[str, Any]) -> Asked:
    asked = Asked(body=body, system=body.get("instructions") or "")
    given = body.get("input") or []
    for item in [{"role": "user", "content": given}] if isinstance(given, str) else given:
        role, kind = item.get("role"), item.get("type", "message")
        if kind == "function_call":
            asked.called.append(item["name"])
        elif kind == "function_call_output" and not (asked.called and asked.called[-1] == OUTPUT):
            asked.results.append(words(item["output"]))
        elif role in ("system", "developer"):
            asked.system += words(item["content"])
        elif role == "user":
            asked.users.append(words(item["content"]))
            asked.results.clear()
        if role in ("user", "assistant") and kind == "message":
            asked.said.append(words(item["content"]))
    asked.tools = [tool.get("name") or tool["type"] for tool in body.get("tools") or []]
    return asked


def words(content: Any) -> str:
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


def items(reply: Reply, asked: Asked, number: int) -> list[dict[str, Any]]:
    """The reply as output items."""
    if isinstance(reply, Given):
        value = reply.value if isinstance(reply.value, dict) else dict.fromkeys(asked.fields, reply.value)
        reply = Call(OUTPUT, value) if OUTPUT in asked.tools else json.dumps(value)
    if isinstance(reply, Call):
        arguments = json.dumps(reply.arguments)
        call = {"type": "function_call", "id": f"fc_{number}", "call_id": f"call_{number}", "status": "completed"}
        return [{**call, "name": reply.name, "arguments": arguments}]
    part = {"type": "output_text", "text": reply, "annotations": []}
    message = {"type": "message", "id": f"msg_{number}", "role": "assistant", "status": "completed"}
    return [{**message, "content": [part]}]


def response(asked: Asked, output: list[dict[str, Any]], number: int) -> dict[str, Any]:
    size = len(json.dumps(asked.body.get("input"))) // 4
    made = sum(len(json.dumps(item)) for item in output) // 4
    return {
        "id": f"resp_{number}",
        "object": "response",
        "created_at": 1,
        "status": "completed",
        "model": asked.body["model"],
        "output": output,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "usage": {
            "input_tokens": size,
            "output_tokens": made,
            "total_tokens": size + made,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens_details": {"reasoning_tokens": 0},
        },
    }


def events(whole: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The same as a stream."""
    yield {"type": "response.created", "response": {**whole, "status": "in_progress", "output": [], "usage": None}}
    for place, item in enumerate(whole["output"]):
        at = {"output_index": place, "item_id": item["id"]}
        empty = {"content": []} if item["type"] == "message" else {"arguments": ""}
        opened = {**item, **empty, "status": "in_progress"}
        yield {"type": "response.output_item.added", "output_index": place, "item": opened}
        if item["type"] == "message":
            part, text = item["content"][0], item["content"][0]["text"]
            where = {**at, "content_index": 0}
            yield {"type": "response.content_part.added", **where, "part": {**part, "text": ""}}
            for start in range(0, len(text), 8):
                piece = {"delta": text[start : start + 8], "logprobs": []}
                yield {"type": "response.output_text.delta", **where, **piece}
            yield {"type": "response.output_text.done", **where, "text": text, "logprobs": []}
            yield {"type": "response.content_part.done", **where, "part": part}
        else:
            text = item["arguments"]
            for start in range(0, len(text), 8):
                yield {"type": "response.function_call_arguments.delta", **at, "delta": text[start : start + 8]}
            done = {"arguments": text, "name": item["name"]}
            yield {"type": "response.function_call_arguments.done", **at, **done}
        yield {"type": "response.output_item.done", "output_index": place, "item": item}
    yield {"type": "response.completed", "response": whole}


def handler(script: Script) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def send(self, status: int, kind: str, content: bytes) -> None:
            self.send_response(status)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(content)))
            self.send_header("retry-after-ms", "1")
            self.end_headers()
            self.wfile.write(content)

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            if not self.path.endswith("/v1/responses"):
                self.send(503, "application/json", b'{"error": {"message": "this one is down"}}')
                return
            asked = read(body)
            number = len(asked.said) + len(asked.called)
            whole = response(asked, items(script(asked), asked, number), number)
            if not body.get("stream"):
                self.send(200, "application/json", json.dumps(whole).encode())
                return
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.send_header("connection", "close")
            self.end_headers()
            for place, event in enumerate(events(whole)):
                line = f"event: {event['type']}\ndata: {json.dumps({**event, 'sequence_number': place})}\n\n"
                self.wfile.write(line.encode())
                if event["type"].endswith("text.delta"):
                    time.sleep(PACE)

    return Handler


@contextlib.contextmanager
def provider(script: Script) -> Iterator[str]:
    """The address of a provider that follows this script; it answers for any host, as a proxy."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler(script))
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
