"""An agent as people write them: a loop over HTTP, only the standard library, no limit of any kind.

`glidepath demo` runs this file with and without the gate. Nothing in it knows of glidepath.
"""

import json
import os
import sys
import urllib.request
from typing import Any

STEP = {
    "type": "function",
    "function": {
        "name": "step",
        "description": "Do the next step.",
        "parameters": {"type": "object", "properties": {}},
    },
}


def work(task: str) -> str:
    """Ask the model until it calls no tool."""
    messages: list[Any] = [{"role": "user", "content": task}]
    while True:
        message = ask(messages)
        messages.append(message)
        if not message.get("tool_calls"):
            return str(message["content"])
        for number, call in enumerate(message["tool_calls"], len(messages)):
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": f"Done. Line {number} of the log."})


def ask(messages: list[Any]) -> Any:
    """One model call."""
    body = json.dumps({"model": "gpt-4o", "messages": messages, "tools": [STEP]}).encode()
    request = urllib.request.Request(  # noqa: S310 - the address that every OpenAI client reads
        os.environ["OPENAI_BASE_URL"] + "/chat/completions",
        body,
        {"content-type": "application/json", "authorization": f"Bearer {os.environ['OPENAI_API_KEY']}"},
    )
    with urllib.request.urlopen(request) as reply:  # noqa: S310
        return json.load(reply)["choices"][0]["message"]


if __name__ == "__main__":
    sys.stdout.write(work("Do all the steps, then report.") + "\n")
