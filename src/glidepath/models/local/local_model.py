"""The embedded model: a GGUF file, served by llama.cpp on this machine. No key, no network, no price."""

from __future__ import annotations

import importlib.util
import os
import weakref
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from functools import partial
from pathlib import Path
from typing import Any, Self

from glidepath.models.exchange import answer
from glidepath.models.local.local_prompt import PromptBrief, loosen_schema, make_brief
from glidepath.models.local.local_reply import LocalReader
from glidepath.models.local.loopback import FAULTS, Response, ask, post
from glidepath.models.local.server import Address, LlamaServer, ServerSettings
from glidepath.models.local.weights import DEFAULT, KNOWN, find_weights_file
from glidepath.spi import ModelRequest
from glidepath.values import (
    ConfigurationError,
    Delta,
    RejectedError,
    TransientError,
    check_int,
    check_seconds,
    install_line,
)

_CHAT = "/v1/chat/completions"
_MAGIC = b"GGUF"
_MOST_THREADS = 8
_OURS = frozenset({"messages", "stream", "stream_options", "max_tokens", "json_schema", "response_format", "grammar"})


class LocalModel:
    """A model on this machine: `LocalModel()` is SmolLM2-135M, `LocalModel("/path/model.gguf")` any GGUF file.

    Its server is its own process, started at the first call and shared by all runs of this object, in any
    event loop. It ends with `await model.aclose()`, with `async with`, with this object, and with this process,
    however that ends.

    `threads`: how many compute; by default all processors but one, at most eight. `parallel`: how many calls are
    answered at once, each with its own `context_window`; more wait. `max_output_tokens`: the longest reply, also
    when a request asks for none. `cache_dir`: the folder that `glidepath.models.pull` was given.
    """

    price = (0, 0)
    usage_is_billed = True  # counted by the tokenizer itself

    def __init__(
        self,
        name_or_path: str | os.PathLike[str] = DEFAULT,
        *,
        threads: int | None = None,
        context_window: int = 4096,
        max_output_tokens: int = 1024,
        parallel: int = 2,
        start_timeout: float = 120,
        cache_dir: str | os.PathLike[str] | None = None,
    ) -> None:
        for field, value in (
            ("context_window", context_window),
            ("max_output_tokens", max_output_tokens),
            ("parallel", parallel),
            ("threads", 1 if threads is None else threads),
        ):
            check_int(field, value, required=True)
        check_seconds("start_timeout", start_timeout, required=True)
        path, self.name, self._sampling = _choose_weights(name_or_path, context_window, cache_dir)
        if importlib.util.find_spec("xllamacpp") is None:
            raise ConfigurationError(f"the embedded model needs xllamacpp: {install_line('local')}")
        self.context_window = context_window
        self.max_output_tokens = max_output_tokens
        self._server = LlamaServer(
            ServerSettings(
                model=str(path),
                context_window=context_window,
                parallel=parallel,
                threads=threads or _threads(),
                start_timeout=float(start_timeout),
            )
        )
        self._closer = weakref.finalize(self, self._server.close)

    # --- the model port ---------------------------------------------------------------------------------------

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        """Answer one request; closing the iterator stops the generation."""
        asked = make_brief(request)
        body = self._body(request, asked)
        address = await self._server.address()
        reader = LocalReader(request, FAULTS, wrapped=asked.wrapped)
        opening = partial(_open_response, address, body, asked)
        try:
            async with aclosing(answer(opening, reader)) as deltas:
                async for delta in deltas:
                    yield delta
        except TransientError:
            self._server.mark_suspect(address)
            raise

    async def count_tokens(self, request: ModelRequest) -> int:
        """The tokens of the prompt, exactly: counted by the model's own tokenizer after its own template."""
        asked = make_brief(request)
        address = await self._server.address()
        prompt = (await ask(address, "/apply-template", {"messages": asked.messages}))["prompt"]
        text = {"content": prompt, "add_special": True, "parse_special": True}
        return len((await ask(address, "/tokenize", text))["tokens"])

    def _body(self, request: ModelRequest, asked: PromptBrief) -> dict[str, Any]:
        body: dict[str, Any] = {**self._sampling}
        if request.temperature is not None:
            body["temperature"] = request.temperature
        if request.seed is not None:
            body["seed"] = request.seed
        if request.logprobs is not None:
            body["logprobs"] = True
            body["top_logprobs"] = request.logprobs
        if request.stop_sequences:
            body["stop"] = list(request.stop_sequences)
        for key, value in (request.extras or {}).items():
            if key in _OURS:
                raise RejectedError(f"extras must not set {key!r}, which the adapter sets: remove it")
            body[key] = value
        body["messages"] = asked.messages
        body["max_tokens"] = min(request.max_output_tokens or self.max_output_tokens, self.max_output_tokens)
        body["stream"] = True
        body["stream_options"] = {"include_usage": True}
        if asked.schema is not None:
            body.pop("repeat_penalty", None)  # arguments repeat what was said
            body["json_schema"] = asked.schema
            body.setdefault("chat_template_kwargs", {"enable_thinking": False})
        return body

    # --- its life ---------------------------------------------------------------------------------------------

    @property
    def pid(self) -> int | None:
        """The process id of its server; None before the first call and after the end."""
        return self._server.pid

    def close(self) -> None:
        """End the server now. A later call would start another."""
        self._server.close()

    async def aclose(self) -> None:
        """End the server now; the same as `close`, for `async` code."""
        self._server.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.close()

    def __repr__(self) -> str:
        return f"<LocalModel {self.name}>"


def _choose_weights(
    name_or_path: str | os.PathLike[str], context_window: int, cache_dir: str | os.PathLike[str] | None
) -> tuple[Path, str, Mapping[str, float]]:
    """The file, the model's name and how to sample, checked."""
    if not isinstance(name_or_path, str | os.PathLike):
        raise ConfigurationError(f"a local model is a name or a path, not {name_or_path!r:.100}")
    given = os.fspath(name_or_path) or DEFAULT
    if given in KNOWN:
        known = KNOWN[given]
        if context_window > known.context_window:
            raise ConfigurationError(
                f"context_window {context_window} is more than {given} can read: at most {known.context_window}"
            )
        return find_weights_file(given, cache_dir), f"local:{given}", known.sampling
    path = Path(given).expanduser()
    try:
        with path.open("rb") as file:
            magic = file.read(len(_MAGIC))
    except OSError as error:
        raise ConfigurationError(
            f"local model {given!r:.200} is neither one of {', '.join(KNOWN)} nor a file that can be read: "
            f"{error.strerror or error}"
        ) from error
    if magic != _MAGIC:
        raise ConfigurationError(f"{given!r:.200} is not a GGUF file: it does not begin with {_MAGIC.decode()}")
    return path.resolve(), f"local:{path.stem}", {}


async def _open_response(address: Address, body: dict[str, Any], asked: PromptBrief) -> Response:
    try:
        return await post(address, _CHAT, body)
    except RejectedError:
        if not asked.wrapped or asked.schema is None:
            raise
    # Maybe a tool's schema cannot be made into a grammar: the arguments are validated later anyway.
    return await post(address, _CHAT, {**body, "json_schema": loosen_schema(asked.schema)})


def _threads() -> int:
    try:
        processors = len(os.sched_getaffinity(0))
    except AttributeError:  # not on this platform
        processors = os.cpu_count() or 1
    return max(1, min(_MOST_THREADS, processors - 1))
