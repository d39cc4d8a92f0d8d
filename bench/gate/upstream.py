"""An upstream that costs next to nothing: answers at once, or with as many deltas as the path says."""

import asyncio
import logging
import sys

TEXT = b'{"id":"m","type":"message","role":"assistant","model":"m","content":[{"type":"text","text":"'
TAIL = b'"}],"stop_reason":"end_turn","stop_sequence":null,"usage":{"input_tokens":500,"output_tokens":40}}'
START = (
    b'event: message_start\ndata: {"type":"message_start","message":{"id":"m","type":"message","role":"assistant",'
    b'"model":"m","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":500,"output_tokens":1}}}'
    b'\n\nevent: content_block_start\ndata: {"type":"content_block_start","index":0,"content_block":{"type":"text",'
    b'"text":""}}\n\n'
)
DELTA = (
    b'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta",'
    b'"text":"hello wor"}}\n\n'
)
END = (
    b'event: content_block_stop\ndata: {"type":"content_block_stop","index":0}\n\nevent: message_delta\ndata: '
    b'{"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":%d}}'
    b'\n\nevent: message_stop\ndata: {"type":"message_stop"}\n\n'
)


_CHUNK = b'data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":['
CHAT = (
    b'{"id":"c","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant",'
    b'"content":"'
)
CHAT_TAIL = b'"},"finish_reason":"stop"}],"usage":{"prompt_tokens":500,"completion_tokens":40,"total_tokens":540}}'
CHAT_EVENT = _CHUNK + b'{"index":0,"delta":%b,"finish_reason":%b}]}\n\n'
CHAT_START = CHAT_EVENT % (b'{"role":"assistant","content":""}', b"null")
CHAT_DELTA = CHAT_EVENT % (b'{"content":"hello wor"}', b"null")
CHAT_END = (
    CHAT_EVENT % (b"{}", b'"stop"')
    + _CHUNK
    + b'],"usage":{"prompt_tokens":500,"completion_tokens":%d,"total_tokens":540}}\n\ndata: [DONE]\n\n'
)


def chunk(data):
    return b"%x\r\n%b\r\n" % (len(data), data)


class Upstream(asyncio.Protocol):
    """Reads requests, however they arrive, and answers each."""

    def connection_made(self, transport):
        self.transport = transport
        self.data = bytearray()

    def data_received(self, data):
        self.data += data
        while (end := self.data.find(b"\r\n\r\n")) >= 0:
            head = bytes(self.data[:end]).lower()
            at = head.find(b"content-length:")
            size = int(head[at + 15 :].split(b"\r\n", 1)[0]) if at >= 0 else 0
            if len(self.data) < end + 4 + size:
                return
            body = bytes(self.data[end + 4 : end + 4 + size])
            del self.data[: end + 4 + size]
            self.answer(body, is_chat=b"/chat/completions" in head.split(b"\r\n", 1)[0])

    def answer(self, body, *, is_chat):
        wanted = int(body.partition(b"deltas=")[2].partition(b";")[0] or 4)
        pause = float(body.partition(b"pause=")[2].partition(b";")[0] or 0)
        if b'"stream":true' in body or b'"stream": true' in body:
            self.task = asyncio.ensure_future(
                self.stream(wanted, pause, (CHAT_START, CHAT_DELTA, CHAT_END) if is_chat else (START, DELTA, END))
            )
            return
        text = CHAT + b"y" * 160 + CHAT_TAIL if is_chat else TEXT + b"y" * 160 + TAIL
        self.transport.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(text), text)
        )

    async def stream(self, wanted, pause, texts):
        write = self.transport.write
        start, delta, end = texts
        write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n" + chunk(start)
        )
        delta = chunk(delta)
        for _ in range(wanted):
            write(delta)
            await asyncio.sleep(pause)
        write(chunk(end % (wanted * 3)) + b"0\r\n\r\n")


async def main(port):
    server = await asyncio.get_running_loop().create_server(Upstream, "127.0.0.1", port)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


logging.getLogger("asyncio").setLevel(logging.CRITICAL)  # clients that end in the middle of a stream
asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 0))
