"""A governor without rules, an upstream that says whatever bytes a test wants, and a client that shows every byte."""

import asyncio
import json
from math import inf

from glidepath.apps.gate import GateAnswer

KEY = "gate-test-key-0123456789"


class PlainPassage:
    """Passes everything on, and remembers what was called in which order."""

    def __init__(self, governor, request, upstream, *, streamed):
        self.governor = governor
        self.upstream = upstream
        self.path, self.query, self.body = request.path, request.query, request.body
        self.is_verbatim = request.is_verbatim
        self.is_streamed = streamed
        self.is_cut = self.is_short = False
        self.stop_reason = None
        self.headers = ((b"x-glidepath-run", b"r1"),)
        self.content_type = None
        self.is_abandoned = False
        self.patience = inf
        self.log = []
        self.parts = []

    def open(self, status, headers):
        self.log.append(("open", status))

    def feed(self, chunk):
        self.log.append("feed")
        if self.governor.on_feed is not None:
            self.governor.on_feed(self)
        if self.is_streamed:
            return chunk
        self.parts.append(chunk)
        return b""

    async def make_room(self):
        self.log.append("room")
        self.is_short = False

    def cut_now(self, reason):
        self.log.append("cut")
        return b"data: cut " + reason.encode() + b"\n\n" if self.is_streamed else b'{"cut":true}'

    def finish(self):
        self.log.append("finish")
        return b"data: end\n\n" if self.is_cut else b"" if self.is_streamed else b"".join(self.parts)

    def fail(self, reason):
        self.log.append(("fail", reason))
        return b"event: error\ndata: " + json.dumps(reason).encode() + b"\n\n"

    async def close(self):
        await asyncio.sleep(0)
        self.log.append("close")


class PlainGovernor:
    """Admits everything, at once or after `wait` is set."""

    def __init__(self, *, wait=None, answer=None):
        self.upstreams = []
        self.requests = []
        self.passages = []
        self.wait = wait
        self.answer = answer
        self.on_feed = None
        self.stopped = None
        self.cancelled = 0

    async def begin(self, request):
        self.requests.append(request)
        if self.wait is not None:
            try:
                await self.wait.wait()
            except asyncio.CancelledError:
                self.cancelled += 1
                raise
        if self.answer is not None:
            return self.answer
        upstream = next((one for one in self.upstreams if one.serves(request.dialect)), None)
        if upstream is None:
            return self.refuse(request, 404, "not_found_error", "no upstream")
        passage = PlainPassage(self, request, upstream, streamed=self._is_streamed(request))
        self.passages.append(passage)
        return passage

    def _is_streamed(self, request):
        if request.is_streamed_by_path is not None:
            return request.is_streamed_by_path
        return b'"stream": true' in request.body or b'"stream":true' in request.body

    def keep_alive(self, request):
        return b": waiting\n\n" if self._is_streamed(request) else b" "

    def refuse(self, request, status, kind, message):
        body = {"type": "error", "dialect": request.dialect, "error": {"type": kind, "message": message}}
        return GateAnswer(status=status, body=json.dumps(body).encode())

    async def stop(self, reason):
        self.stopped = reason
        for passage in self.passages:
            passage.stop_reason = reason

    def report(self):
        return {"calls": len(self.passages), "tokens": 0, "cost": None, "limit": {}, "landed": False, "agents": []}


class RawUpstream:
    """Answers with the bytes that `script` writes; keeps the bytes of every request."""

    def __init__(self, script=None):
        self.script = script or answer_json
        self.heads = []
        self.bodies = []
        self.connections = 0
        self.dropped = asyncio.Event()
        self._tasks = set()

    async def __aenter__(self):
        self._server = await asyncio.start_server(self._talk, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        return self

    async def __aexit__(self, *_):
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _talk(self, reader, writer):
        self._tasks.add(asyncio.current_task())
        self.connections += 1
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
                body = await reader.readexactly(int(length[0].split(b":")[1])) if length else b""
                self.heads.append(head)
                self.bodies.append(body)
                talk = asyncio.ensure_future(self.script(writer, head, body))
                self._tasks.add(talk)
                gone = asyncio.ensure_future(_eof(reader, talk))
                await talk
                gone.cancel()
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            self.dropped.set()
        finally:
            writer.close()


async def _eof(reader, talk):
    await until(reader.at_eof)
    talk.cancel()


async def until(holds):
    """Wait until this is true."""
    while not holds():  # noqa: ASYNC110 - what is looked at belongs to other people
        await asyncio.sleep(0.005)


async def answer_json(writer, head, body):
    text = b'{"ok": true}'
    writer.write(
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nX-Odd:  two  words\r\nRequest-Id: req_1\r\n"
        b"Date: Mon, 01 Jan 2024 00:00:00 GMT\r\nConnection: keep-alive\r\nKeep-Alive: timeout=5\r\n"
        b"Content-Length: %d\r\n\r\n" % len(text) + text
    )


def raw(*parts, pause=0.0, hang=False, close=False):
    """A script that writes these bytes."""

    async def script(writer, head, body):
        for part in parts:
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(pause)
        if hang:
            await asyncio.sleep(60)
        if close:
            writer.close()

    return script


def events(*parts, head=b"", **options):
    """A script of a chunked stream of events."""
    start = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n" + head + b"\r\n"
    chunks = [b"%x\r\n%b\r\n" % (len(part), part) for part in parts]
    return raw(start, *chunks, *([] if options.get("hang") or options.get("close") else [b"0\r\n\r\n"]), **options)


class Reply:
    def __init__(self, head, body):
        self.head = head
        self.status = int(head.split(b" ", 2)[1])
        self.headers = [tuple(line.split(b": ", 1)) for line in head.split(b"\r\n")[1:] if line]
        self.body = body

    def header(self, name):
        return next((value for key, value in self.headers if key == name), None)

    @property
    def json(self):
        return json.loads(self.body)


class Talk:
    """One connection to a gate, byte by byte."""

    def __init__(self, gate):
        self.port = gate.socket.getsockname()[1]

    async def __aenter__(self):
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)
        return self

    async def __aexit__(self, *_):
        self.writer.close()

    def send(self, path, body=b"{}", *, method="POST", headers=(), key=KEY, host=b"127.0.0.1", length=None):
        lines = [b"%b %b HTTP/1.1" % (method.encode(), path.encode()), b"host: " + host]
        lines += [b"%b: %b" % pair for pair in headers]
        if key:
            lines.append(b"authorization: Bearer " + key.encode())
        if body is not None:
            lines.append(b"content-length: %d" % (len(body) if length is None else length))
        self.writer.write(b"\r\n".join(lines) + b"\r\n\r\n" + (body or b""))

    async def read_head(self):
        return await self.reader.readuntil(b"\r\n\r\n")

    async def read_reply(self):
        head = await self.read_head()
        return Reply(head, b"".join([part async for part in self.read_body(head)]))

    async def read_body(self, head):
        lower = head.lower()
        if b"content-length:" in lower:
            yield await self.reader.readexactly(int(lower.split(b"content-length:")[1].split(b"\r\n")[0]))
            return
        while size := int(await self.reader.readuntil(b"\r\n"), 16):
            yield (await self.reader.readexactly(size + 2))[:-2]
        await self.reader.readexactly(2)


async def ask(gate, path, body=b"{}", **options):
    async with Talk(gate) as talk:
        talk.send(path, body, **options)
        return await asyncio.wait_for(talk.read_reply(), 20)


class Stage:
    """A gate with a plain governor in front of a raw upstream."""

    def __init__(self, script=None, *, governor=None, upstream=None, **options):
        self.upstream = RawUpstream(script)
        self.governor = governor or PlainGovernor()
        self._fields = upstream or {}
        self._options = options

    async def __aenter__(self):
        from glidepath.apps.gate import VENDORS, Gate, Upstream

        await self.upstream.__aenter__()
        upstreams = [Upstream(name, name, self.upstream.url, **self._fields) for name in VENDORS]
        self.governor.upstreams = upstreams
        self._options.setdefault("environ", {"THE_KEY": "sk-provider-secret"})
        self.gate = Gate(upstream=upstreams, governor=self.governor, key=KEY, **self._options)
        await self.gate.__aenter__()
        return self

    async def __aexit__(self, *_):
        await self.gate.close(0.2)
        await self.upstream.__aexit__()

    def ask(self, path, body=b"{}", **options):
        return ask(self.gate, path, body, **options)


def on_stage(play, *arguments, **options):
    """Play one scene on a stage, in real time but bounded."""

    async def run():
        async with Stage(*arguments, **options) as stage:
            return await play(stage)

    return asyncio.run(asyncio.wait_for(run(), 30))
