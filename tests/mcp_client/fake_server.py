"""A server on stdio that does as it is told, in both eras of the protocol. It starts in a moment: no SDK.

python fake_server.py '{"era": "modern", "tools": ["echo", "die"]}'
"""

import json
import os
import sys
import time

SETUP = json.loads(sys.argv[1]) if len(sys.argv) > 1 else {}
MODERN = SETUP.get("era", "legacy") == "modern"
LOG = SETUP.get("log")
COUNT = SETUP.get("count")  # a file that has one byte for every start


def note(line):
    if LOG:
        with open(LOG, "a") as file:
            file.write(line + "\n")


def send(data):
    sys.stdout.write(json.dumps(data) + "\n")
    sys.stdout.flush()


def answer(request, result):
    if MODERN:
        result = {"resultType": "complete", **result}
    send({"jsonrpc": "2.0", "id": request["id"], "result": result})


def fail(request, code, message, data=None):
    error = {"code": code, "message": message}
    if data is not None:
        error["data"] = data
    send({"jsonrpc": "2.0", "id": request["id"], "error": error})


def text(request, said, **more):
    answer(request, {"content": [{"type": "text", "text": said}], **more})


OPEN = {"type": "object"}
TOOLS = {
    "echo": {
        "description": "Say it back.",
        "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
    },
    "add": {
        "description": "Add two numbers.",
        "inputSchema": {
            "type": "object",
            "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
            "required": ["a", "b"],
        },
        "annotations": {"readOnlyHint": True, "idempotentHint": True},
    },
    "send": {"description": "Send it.", "inputSchema": OPEN, "annotations": {"idempotentHint": False}},
    "nested": {
        "description": "Deep arguments.",
        "inputSchema": {
            "type": "object",
            "properties": {"items": {"type": "array", "items": {"$ref": "#/$defs/Item"}}},
            "$defs": {"Item": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}},
        },
    },
}


def capabilities():
    return {"tools": {"listChanged": True}, **SETUP.get("capabilities", {})}


def definitions():
    wanted = []
    for name in SETUP.get("tools", ["echo", "add"]):
        if isinstance(name, dict):
            wanted.append(name)
        else:
            wanted.append({"name": name, **TOOLS.get(name, {"description": name, "inputSchema": OPEN})})
    return wanted


LIST = {"calls": 0}


def listed(request):
    LIST["calls"] += 1
    tools = definitions()
    after = SETUP.get("after_change")
    if after is not None and LIST["calls"] > 1:
        tools = after
    more = {"ttlMs": 0, "cacheScope": "private"} if MODERN else {}
    if SETUP.get("endless_pages"):
        more["nextCursor"] = str(LIST["calls"])
        tools = [{"name": f"t{LIST['calls']}", "inputSchema": OPEN}]
    answer(request, {"tools": tools, **more})


def told(method, params=None):
    send({"jsonrpc": "2.0", "method": method, "params": params or {}})


def ask(request, number, method, params):
    """Ask the client and wait for its answer (older protocol)."""
    send({"jsonrpc": "2.0", "id": f"q{number}", "method": method, "params": params})
    while True:
        got = json.loads(sys.stdin.readline())
        if got.get("id") == f"q{number}":
            return got
        note(json.dumps(got))


FORM = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


def sampling(prompt="Say hello", tokens=50):
    message = {"role": "user", "content": {"type": "text", "text": prompt}}
    return {"messages": [message], "maxTokens": tokens}


def needs(request, requests, state="s1"):
    send(
        {
            "jsonrpc": "2.0",
            "id": request["id"],
            "result": {"resultType": "input_required", "inputRequests": requests, "requestState": state},
        }
    )


def progress(request, done, total, said):
    token = request["params"].get("_meta", {}).get("progressToken")
    if token is not None:
        told("notifications/progress", {"progressToken": token, "progress": done, "total": total, "message": said})


def called(request):  # noqa: C901, PLR0912, PLR0915 - one line for each thing a server can do
    params = request["params"]
    name, given = params["name"], params.get("arguments") or {}
    note(f"call {name} {json.dumps(given, sort_keys=True)}")
    responses, state = params.get("inputResponses") or {}, params.get("requestState")
    if name == "echo":
        return text(request, given["text"])
    if name == "add":
        total = given["a"] + given["b"]
        return text(request, str(total), structuredContent={"result": total})
    if name in ("send", "nested"):
        return text(request, "ok")
    if name == "meta":
        return text(request, json.dumps(params.get("_meta", {})))
    if name == "die":
        os._exit(3)
    if name == "die_with_heir":
        import subprocess

        subprocess.Popen(["sleep", "30"])  # it holds our pipes, as what npx or a shell has started does
        os._exit(3)
    if name == "die_once":
        if os.path.getsize(COUNT) < 2:
            os._exit(3)
        return text(request, "alive")
    if name == "silent":
        return None
    if name == "slow":
        for step in range(int(given.get("steps", 5))):
            progress(request, step, 5, f"step {step}")
            time.sleep(float(given.get("pause", 0.05)))
        return text(request, "done")
    if name == "long":
        sys.stdout.write('{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"text","text":"' % request["id"])
        for _ in range(int(given.get("mib", 32))):
            sys.stdout.write("x" * (1 << 20))
        sys.stdout.write('"}]}}\n')
        return sys.stdout.flush()
    if name == "big":
        return text(request, "y" * int(given.get("size", 1 << 20)))
    if name == "crumbs":
        return answer(request, {"content": [{"type": "text", "text": "x"}] * int(given["count"])})
    if name == "flood":
        line = json.dumps(
            {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "x"}}
        )
        sys.stdout.write((line + "\n") * int(given.get("count", 20000)))
        return text(request, "flooded")
    if name == "noise":
        sys.stdout.write("Starting up...\nDEBUG hello\n")
        return text(request, "heard")
    if name == "bad_json":
        sys.stdout.write('{"jsonrpc":"2.0","id":%d,"result":"no object"}\n' % request["id"])
        return sys.stdout.flush()
    if name == "bad_result":
        return answer(request, {"content": "not a list"})
    if name == "error":
        return fail(request, -32000 - 5, "no such luck")
    if name == "tool_error":
        return text(request, "it failed", isError=True)
    if name == "parts":
        return answer(
            request, {"content": PARTS, **({"structuredContent": {"n": 1}} if given.get("structured") else {})}
        )
    if name == "env":
        return text(request, json.dumps(dict(os.environ)))
    if name == "change":
        told("notifications/tools/list_changed")
        return text(request, "changed")
    if name == "ask":
        if MODERN:
            if "who" not in responses:
                return needs(request, {"who": {"method": "elicitation/create", "params": question(given)}}, "state-1")
            said = responses["who"]
            return text(request, f"{said['action']} {json.dumps(said.get('content'))} {state}")
        said = ask(request, 1, "elicitation/create", question(given)).get("result", {})
        return text(request, f"{said.get('action')} {json.dumps(said.get('content'))}")
    if name == "broken_json":
        sys.stdout.flush()
        sys.stdout.buffer.write(given["line"].encode("latin-1").replace(b"ID", str(request["id"]).encode()) + b"\n")
        return sys.stdout.buffer.flush()
    if name == "ask_to_ping":
        while True:
            sys.stdout.write('{"jsonrpc": "2.0", "id": "p", "method": "ping"}\n' * 100)
    if name == "image":
        return answer(request, {"content": [{"type": "image", "data": given["data"], "mimeType": "image/png"}]})
    if name == "pid":
        return text(request, str(os.getpid()))
    if name == "ask_for_ever":
        return needs(request, {"who": {"method": "elicitation/create", "params": question(given)}}, "again")
    if name == "state_for_ever":
        return send(
            {"jsonrpc": "2.0", "id": request["id"], "result": {"resultType": "input_required", "requestState": "x"}}
        )
    if name == "sample":
        return sample(request, given, responses)
    return fail(request, -32601, f"no tool {name}")


def question(given):
    if given.get("url"):
        return {"mode": "url", "message": "Sign in", "url": "https://example.com/sign-in", "elicitationId": "e1"}
    form = FORM
    if given.get("secret"):
        form = {"type": "object", "properties": {"password": {"type": "string"}}}
    return {"mode": "form", "message": given.get("message", "Which city?"), "requestedSchema": form}


def sample(request, given, responses):
    times = int(given.get("times", 1))
    if MODERN:
        if len(responses) < 1:
            requests = {
                f"m{number}": {
                    "method": "sampling/createMessage",
                    "params": sampling(tokens=int(given.get("tokens", 50))),
                }
                for number in range(times)
            }
            return needs(request, requests)
        return text(request, "; ".join(one["content"]["text"] for one in responses.values()))
    said = []
    for number in range(times):
        got = ask(request, number, "sampling/createMessage", sampling(tokens=int(given.get("tokens", 50))))
        said.append(got["result"]["content"]["text"] if "result" in got else "refused: " + got["error"]["message"])
    return text(request, "; ".join(said))


PARTS = [
    {"type": "text", "text": "hello"},
    {"type": "image", "data": "iVBORw0KGgo=", "mimeType": "image/png"},
    {"type": "resource_link", "uri": "file:///a.txt", "name": "a.txt", "mimeType": "text/plain", "size": 3},
    {"type": "resource", "resource": {"uri": "file:///b.txt", "text": "inside"}},
    {"type": "resource", "resource": {"uri": "file:///c.bin", "blob": "AAEC", "mimeType": "application/x-thing"}},
]


def handle(request):
    method = request.get("method")
    if method == "server/discover":
        if not MODERN:
            return fail(request, -32601, "Method not found")
        return answer(
            request,
            {
                "supportedVersions": ["2026-07-28"],
                "capabilities": capabilities(),
                "ttlMs": 0,
                "cacheScope": "private",
            },
        )
    if method == "initialize":
        return answer(
            request,
            {
                "protocolVersion": "2025-11-25",
                "capabilities": capabilities(),
                "serverInfo": {"name": "fake", "version": "1"},
            },
        )
    if method == "tools/list":
        return listed(request)
    if method == "tools/call":
        return called(request)
    if method == "resources/list":
        return answer(request, {"resources": [{"uri": "file:///r.txt", "name": "r.txt"}], **hints()})
    if method == "resources/read":
        contents = [{"uri": request["params"]["uri"], "text": "the resource"}]
        return answer(request, {"contents": contents, **hints()})
    if method == "prompts/list":
        prompt = {"name": "review", "description": "Review.", "arguments": [{"name": "what", "required": True}]}
        return answer(request, {"prompts": [prompt], **hints()})
    if method == "prompts/get":
        what = request["params"].get("arguments", {}).get("what", "")
        message = {"role": "user", "content": {"type": "text", "text": f"Review {what}."}}
        return answer(request, {"messages": [message]})
    if "id" in request and method:
        return fail(request, -32601, "Method not found")
    note(json.dumps(request))
    return None


def hints():
    return {"ttlMs": 0, "cacheScope": "private"} if MODERN else {}


def main():
    if COUNT:
        with open(COUNT, "ab") as file:
            file.write(b"x")
    if SETUP.get("stubborn"):
        import signal

        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if SETUP.get("exit_at_start"):
        sys.stderr.write("missing API key\n")
        sys.exit(2)
    if SETUP.get("never_answers"):
        while sys.stdin.readline():
            pass
        return
    if SETUP.get("text_at_start"):
        print("Welcome to my server!", flush=True)
    for line in sys.stdin:
        handle(json.loads(line))
    note("end of input")
    while SETUP.get("stubborn"):
        time.sleep(0.2)


main()
