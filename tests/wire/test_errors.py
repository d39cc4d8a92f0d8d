"""Every error of a provider, an SDK or the transport has one of our kinds, and shows no key."""

import asyncio
import io
import logging
import socket
import ssl
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from glidepath import Agent, AgentState, Limits, LoopOutcome
from glidepath.errors import (
    ConfigurationError,
    ContextOverflowError,
    InconsistentHistoryError,
    RateLimitedError,
    RefusedError,
    RejectedError,
    TransientError,
)
from glidepath.messages import UserMessage
from glidepath.models import (
    AnthropicModel,
    Faults,
    GoogleModel,
    ModelRequest,
    OpenAIChatModel,
    OpenAIResponsesModel,
    retry_after,
)

from .dialects import DIALECTS, KEY, Anthropic, Chat, Google, Responses
from .server import Answer, Wire, error, run

every = pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
REQUEST = ModelRequest(messages=[UserMessage("hello")])


def raised(dialect, answer):
    """The error that one answer makes."""

    async def ask():
        async with Wire([answer]) as wire:
            model = dialect.model(wire.url)
            try:
                async for _ in model.stream(REQUEST):
                    pass
            except Exception as caught:
                return caught
            finally:
                await model.aclose()
            return None

    return run(ask)


def openai(code=None, param=None, message="no", kind="invalid_request_error"):
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def anthropic(kind, message="no", **details):
    return {"type": "error", "error": {"type": kind, "message": message, **details}}


def google(code, status, message="no", **more):
    return {"error": {"code": code, "status": status, "message": message, **more}}


@every
@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, RejectedError),
        (401, RejectedError),
        (403, RejectedError),
        (404, RejectedError),
        (408, TransientError),
        (413, ContextOverflowError),
        (422, RejectedError),
        (429, RateLimitedError),
        (500, TransientError),
        (502, TransientError),
        (503, TransientError),
        (529, TransientError),
    ],
)
def test_a_status_has_its_kind_even_when_the_body_is_no_json(dialect, status, kind):
    caught = raised(dialect, Answer([b"<h1>Sorry</h1>"], status=status, kind="text/html"))
    assert type(caught) is kind
    assert str(status) in str(caught)
    assert caught.__cause__ is None
    assert caught.__context__ is None  # an SDK's error holds the request with its key


@pytest.mark.parametrize(
    ("dialect", "status", "body", "kind"),
    [
        (Chat(), 400, openai("context_length_exceeded"), ContextOverflowError),
        (Chat(), 400, openai(None, kind="exceed_context_size_error"), ContextOverflowError),
        (Chat(), 400, openai(message="This model's maximum context length is 8192 tokens"), ContextOverflowError),
        (Chat(), 400, openai("content_policy_violation"), RefusedError),
        (Chat(), 400, openai("content_filter"), RefusedError),
        (Chat(), 400, openai(param="messages.[3].role"), InconsistentHistoryError),
        (Chat(), 400, openai("invalid_image_url", param="messages.[0]"), RejectedError),
        (Chat(), 429, openai("rate_limit_exceeded"), RateLimitedError),
        (Chat(), 429, openai("insufficient_quota", kind="insufficient_quota"), RejectedError),
        (Responses(), 400, openai("context_length_exceeded", "input"), ContextOverflowError),
        (Responses(), 400, openai(param="input[2].call_id"), InconsistentHistoryError),
        (Responses(), 401, openai("invalid_api_key"), RejectedError),
        (Anthropic(), 400, anthropic("invalid_request_error", "prompt is too long: 9 > 8"), ContextOverflowError),
        (Anthropic(), 400, anthropic("invalid_request_error", "messages.1: `tool_use` ids"), InconsistentHistoryError),
        (Anthropic(), 400, anthropic("invalid_request_error", "temperature: too hot"), RejectedError),
        (Anthropic(), 413, anthropic("request_too_large"), ContextOverflowError),
        (Anthropic(), 402, anthropic("billing_error"), RejectedError),
        (Anthropic(), 529, anthropic("overloaded_error"), TransientError),
        (Anthropic(), 404, anthropic("not_found_error", "model: claude-9"), RejectedError),
        (
            Google(),
            400,
            google(
                400, "INVALID_ARGUMENT", "The input token count (9) exceeds the maximum number of tokens allowed (8)."
            ),
            ContextOverflowError,
        ),
        (
            Google(),
            400,
            google(
                400, "INVALID_ARGUMENT", "Please ensure that function call turn comes immediately after a user turn"
            ),
            InconsistentHistoryError,
        ),
        (Google(), 400, google(400, "INVALID_ARGUMENT", "API key not valid."), RejectedError),
        (Google(), 429, google(429, "RESOURCE_EXHAUSTED"), RateLimitedError),
        (Google(), 503, google(503, "UNAVAILABLE"), TransientError),
    ],
)
def test_a_code_says_the_kind(dialect, status, body, kind):
    assert type(raised(dialect, error(status, body))) is kind


@pytest.mark.parametrize(
    ("dialect", "code", "kind"),
    [
        (Chat(), "rate_limit_exceeded", RateLimitedError),
        (Chat(), "context_length_exceeded", ContextOverflowError),
        (Responses(), "server_error", TransientError),
        (Responses(), "rate_limit_exceeded", RateLimitedError),
        (Responses(), "invalid_prompt", RefusedError),
        (Anthropic(), "overloaded_error", TransientError),
        (Anthropic(), "rate_limit_error", RateLimitedError),
        (Anthropic(), "authentication_error", RejectedError),
        (Google(), "resource_exhausted", RateLimitedError),
    ],
)
def test_an_error_in_mid_stream_has_its_kind(dialect, code, kind):
    assert type(raised(dialect, Answer([*dialect.text("x"), dialect.failed(code)]))) is kind


@every
@pytest.mark.parametrize("status", [500, 503, 529])
def test_a_server_that_is_down_may_say_for_how_long(dialect, status):
    caught = raised(dialect, error(status, {}, retry_after="7"))
    assert (type(caught), caught.retry_after) == (TransientError, 7)


@every
@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "7"}, 7),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after-ms": "1500", "retry-after": "9"}, 1.5),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "-3"}, None),
        ({"retry-after": "nan"}, None),
        ({}, None),
    ],
)
def test_retry_after_is_read_in_every_form(dialect, headers, seconds):
    answer = Answer([b"{}"], status=429, kind="application/json", headers=headers)
    assert raised(dialect, answer).retry_after == seconds


def test_retry_after_as_a_date():
    when = format_datetime(datetime.now(UTC) + timedelta(seconds=90), usegmt=True)
    assert 80 < retry_after({"retry-after": when}) <= 90
    assert retry_after({"retry-after": "Sun, 06 Nov 1994 08:49:37 GMT"}) == 0


def test_google_says_the_delay_in_the_body():
    details = [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34.5s"}]
    assert raised(Google(), error(429, google(429, "RESOURCE_EXHAUSTED", details=details))).retry_after == 34.5


@every
def test_a_refused_key_names_what_to_check(dialect):
    assert "key" in str(raised(dialect, error(401, openai("nope"))))
    assert "model name" in str(raised(dialect, error(404, openai("nope"))))


def test_a_prompt_that_google_blocks_is_refused():
    answer = Answer([b'data: {"promptFeedback": {"blockReason": "SAFETY"}}\n\n'])
    assert type(raised(Google(), answer)) is RefusedError


def test_a_call_that_gemini_could_not_write_is_tried_again():
    chunk = Google.chunk(finishReason="MALFORMED_FUNCTION_CALL")
    assert type(raised(Google(), Answer([chunk]))) is TransientError


def test_an_untrusted_certificate_is_not_tried_again():
    inner = ssl.SSLCertVerificationError(1, "self-signed certificate")
    outer = RuntimeError("Connection error.")
    outer.__cause__ = inner
    assert type(Faults("x", [], "").explain(outer)) is RejectedError
    assert type(Faults("x", [], "").explain(ssl.SSLError(1, "bad record"))) is TransientError


# --- keys -----------------------------------------------------------------------------------------------------

MODELS = [OpenAIChatModel, OpenAIResponsesModel, AnthropicModel, GoogleModel]
VARIABLES = {
    OpenAIChatModel: "OPENAI_API_KEY",
    OpenAIResponsesModel: "OPENAI_API_KEY",
    AnthropicModel: "ANTHROPIC_API_KEY",
    GoogleModel: "GEMINI_API_KEY",
}


@pytest.fixture
def no_keys(monkeypatch, tmp_path):
    for name in (*VARIABLES.values(), "GOOGLE_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ANTHROPIC_CONFIG_DIR", str(tmp_path))
    return monkeypatch


@pytest.mark.parametrize("model", MODELS)
def test_a_missing_key_is_a_configuration_error_that_names_the_variable(model, no_keys):
    with pytest.raises(ConfigurationError, match=VARIABLES[model]):
        model("some-model")


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(
    "bad", ["", "  ", "line\nbreak-secret", "pass word-secret", "schl\u00fcssel-secret", "nul\0-secret", 7]
)
def test_a_key_that_cannot_be_sent_is_refused_and_not_shown(model, bad, no_keys):
    with pytest.raises(ConfigurationError) as caught:
        model("some-model", api_key=bad)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("url", ["", "localhost:80", "ftp://x", "http://", 5, "http://user:secret-pw@host/v1"])
def test_an_address_that_is_none_or_holds_a_password_is_refused(model, url):
    with pytest.raises(ConfigurationError, match="base_url") as caught:
        model("some-model", api_key="k-0123456789", base_url=url)
    assert "secret-pw" not in str(caught.value)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("name", ["", " ", None, 7, "a\nb", "a\0b"])
def test_a_name_that_is_none_is_refused(model, name):
    with pytest.raises(ConfigurationError, match="name"):
        model(name, api_key="k-0123456789")


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(
    "headers", [["x"], {"x": 1}, {"x": "a\nb-secret"}, {"": "v"}, {7: "v"}, {"x": "\u00e9-secret"}]
)
def test_headers_that_cannot_be_sent_are_refused_and_not_shown(model, headers):
    with pytest.raises(ConfigurationError, match="headers") as caught:
        model("some-model", api_key="k-0123456789", headers=headers)
    assert "secret" not in str(caught.value)


def test_openais_key_is_not_sent_to_another_server(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)

    async def ask():
        async with Wire([Answer([*Chat().text("x"), *Chat().end()])]) as wire:
            model = OpenAIChatModel("m", base_url=wire.url)
            async for _ in model.stream(REQUEST):
                pass
            await model.aclose()
            return wire.requests[0]

    assert KEY not in str(run(ask).headers)


LEAKS = [
    lambda d: Answer(
        [f'{{"error": {{"message": "bad key {KEY}", "code": "{KEY}", "type": "{KEY}"}}}}'.encode()], status=401
    ),
    lambda d: Answer([f"<p>{KEY}</p>".encode()], status=500, kind="text/html"),
    lambda d: Answer([f"<p>{KEY}</p>".encode()], kind=f"text/html; {KEY}"),
    lambda d: Answer([*d.text("x"), f"data: {{{KEY}\n\n".encode()]),
    lambda d: Answer([*d.text("x"), d.failed(KEY)]),
    lambda d: Answer([*d.text("x")], ending="abort", headers={"x-echo": KEY}),
    lambda d: Answer([], status=429, headers={"retry-after": KEY}),
]


@every
@pytest.mark.parametrize("leak", range(len(LEAKS)))
def test_a_key_shows_nowhere(dialect, leak):
    """The key is echoed in every place a server has; errors, events, logs at every level and reprs are searched."""
    seen, stream = [], io.StringIO()
    handler = logging.StreamHandler(stream)
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)

    async def fly():
        async with Wire([LEAKS[leak](dialect)]) as wire:
            model = dialect.model(wire.url, headers={"x-custom": f"{KEY}-too"})
            limits = Limits(max_iterations=2)
            agent = Agent(model=model, limits=limits, max_retries=0, event_sink=seen.append)
            result = await agent.run("hello")
            assert KEY in str(wire.requests[0].headers)  # it was really sent
            seen.extend([result, agent, agent.config, model, agent._plan])
            return result

    try:
        result = run(fly)
    finally:
        root.removeHandler(handler)
        root.setLevel(level)
    assert result.state.value == "error"
    stream.write("".join([repr(item) for item in seen]))
    # At DEBUG the transport library itself prints the headers it receives, and here a server echoes the key in one.
    ours = [line for line in stream.getvalue().splitlines() if not line.startswith(("receive_", "HTTP "))]
    assert KEY not in "\n".join(ours), [line for line in ours if KEY in line]


def test_an_unknown_word_of_an_sdk_is_still_scrubbed():
    text = Faults("x", [], "").clean("Incorrect API key: sk-proj-abcdefghijklmnop and Bearer abcdefgh12345")
    assert "abcdefgh" not in text


@every
def test_a_cancelled_open_leaves_no_error(dialect):
    async def cancel():
        async with Wire([Answer(ending="hang")]) as wire:
            model = dialect.model(wire.url)
            task = asyncio.create_task(anext(aiter(model.stream(REQUEST))))
            await wire.asked.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await model.aclose()

    run(cancel)


@contextmanager
def nobody_answers():
    """An address where a connection is neither accepted nor refused: the queue of those who wait is full."""
    with ExitStack() as open_sockets:
        deaf = open_sockets.enter_context(socket.socket())
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(0)
        for _ in range(8):
            waiting = open_sockets.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(deaf.getsockname())
        yield f"http://127.0.0.1:{deaf.getsockname()[1]}"


@every
def test_a_connection_that_is_not_opened_in_time_is_given_up(dialect):
    async def go():
        with nobody_answers() as url:
            model = dialect.model(url)
            limits = Limits(max_iterations=2, timeout=15)
            result = await Agent(model=model, limits=limits, connect_timeout=0.2, max_retries=0).run("hi")
            await model.aclose()
            return result

    result = run(go)
    assert (result.state, result.outcome) == (AgentState.ERROR, LoopOutcome.FAILED)
    assert "connect_timeout" in result.cause.reason


@every
def test_a_server_that_thinks_before_it_answers_is_not_cut_by_the_connect_timeout(dialect):
    async def go():
        async with Wire([Answer([*dialect.text("ok"), *dialect.end()], wait=0.4)]) as wire:
            model = dialect.model(wire.url)
            result = await Agent(model=model, limits=Limits(max_iterations=2), connect_timeout=0.2).run("hi")
            await model.aclose()
            return result, len(wire.requests)

    result, asked = run(go)
    assert (result.text, asked) == ("ok", 1)
