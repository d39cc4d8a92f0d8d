"""A model on the wire: a small server that speaks OpenAI's chat completions and follows a script.

It has no memory: what it answers depends on the messages and tools it is sent, so any framework gets the same replies.
"""

import contextlib
import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def answer(request):
    """The next reply: the name and arguments of a call, or a text."""
    messages = request["messages"]
    task = next(words(message) for message in messages if message["role"] == "user")
    results = [words(message) for message in messages if message["role"] == "tool"]
    refund = re.search(r"Refund order (\d+)", task)
    if refund is not None:
        number = int(refund[1])
        steps = [("find_order", {"number": number}), ("refund", {"number": number, "cents": 4900})]
        return steps[len(results)] if len(results) < len(steps) else f"Order {number}: 4900 cents are on their way."
    if request.get("tools") and request.get("tool_choice") != "none":
        return "read_page", {"page": len(results) + 1}
    return f"I read {len(results)} pages of the handbook. The rest is unread."


def words(message):
    content = message.get("content") or ""
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


def completion(request):
    """The reply as one JSON object."""
    reply = answer(request)
    message, reason = {"role": "assistant", "content": None}, "stop"
    if isinstance(reply, str):
        message["content"] = reply
    else:
        name, arguments = reply
        number = sum(message["role"] == "tool" for message in request["messages"])
        function = {"name": name, "arguments": json.dumps(arguments)}
        message["tool_calls"] = [{"id": f"call_{number}", "type": "function", "function": function}]
        reason = "tool_calls"
    size = len(json.dumps(request["messages"])) // 4
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": request["model"],
        "choices": [{"index": 0, "message": message, "finish_reason": reason, "logprobs": None}],
        "usage": {"prompt_tokens": size, "completion_tokens": 20, "total_tokens": size + 20},
    }


def chunks(request):
    """The same as a stream."""
    whole = completion(request)
    choice, usage = whole["choices"][0], whole.pop("usage")
    delta = {key: value for key, value in choice["message"].items() if value is not None}
    for number, call in enumerate(delta.get("tool_calls", ())):
        call["index"] = number
    for part, reason in ((delta, None), ({}, choice["finish_reason"])):
        choices = [{"index": 0, "delta": part, "finish_reason": reason}]
        yield {**whole, "object": "chat.completion.chunk", "choices": choices}
    yield {**whole, "object": "chat.completion.chunk", "choices": [], "usage": usage}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.asked.append(request)
        if request.get("stream"):
            lines = [f"data: {json.dumps(chunk)}\n\n" for chunk in chunks(request)]
            body, kind = "".join([*lines, "data: [DONE]\n\n"]), "text/event-stream"
        else:
            body, kind = json.dumps(completion(request)), "application/json"
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body.encode())))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def wire_model():
    """Its address, for `OPENAI_BASE_URL`, and the requests it was sent."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.asked = []
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1", server.asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
