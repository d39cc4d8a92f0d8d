"""Model hosts: one table of names, addresses, keys, prices and quirks.

Model strings, `glidepath models list`, the table in the documentation and the hints in errors all come from it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from urllib.parse import urlsplit

from glidepath._wire import Value, replace
from glidepath.models.attached import SOUNDS, Takes
from glidepath.models.checks import is_vendor_address
from glidepath.spi import REASONING
from glidepath.values import ConfigurationError

_DOCUMENTS = ("application/", "text/")


class Quirks(Value, frozen=True, kw_only=True):
    """How a chat completions server differs from OpenAI's. The defaults suit an unknown server."""

    cap: str = "max_tokens"
    """The field of the output cap."""
    stream_options: bool = True
    """It accepts `stream_options`."""
    schema: str = "schema"
    """How an output schema is enforced: `schema`, `json` (JSON mode and the schema in the prompt), or `words`."""
    named_choice: bool = True
    """`tool_choice` may name a tool; else the choice is `required`."""
    effort: str = "reasoning_effort"
    """The field of the reasoning effort; `reasoning` is an object that contains it."""
    seed: str = "seed"
    """The field of the seed."""
    short_ids: bool = False
    """A call id must be nine letters or digits."""
    user_after_tool: bool = True
    """A user message may follow a tool message."""
    most_stops: int | None = None
    """How many stop sequences it accepts."""
    no_stop: str = ""
    """A pattern of the models that refuse stop sequences."""
    no_effort: str = ""
    """A pattern of the models that refuse a reasoning effort."""
    efforts: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """The efforts that models accept, by pattern; a model that matches none accepts all."""
    thinking_switch: bool = False
    """Reasoning is turned off with the field `thinking`."""
    all_thoughts: bool = False
    """The thoughts of every reply with calls are sent back, even from earlier tool loops."""
    fixed: str = ""
    """A pattern of the models that refuse a temperature while they reason."""
    calm: str = ""
    """A pattern of those among them that accept one, and report probabilities, at the effort `none`."""
    plain_tools: str = ""
    """A pattern of the models that accept tools only at the effort `none`."""
    logprobs: bool = True
    """It can report the probabilities of its tokens."""
    no_logprobs: str = ""
    """A pattern of the models that do not report them."""
    takes: Takes = Takes(document=_DOCUMENTS, audio=tuple(SOUNDS), video=("video/",))
    """What it accepts besides text."""


class ModelHost(Value, frozen=True, kw_only=True):
    """A host of models, as a model string names it."""

    name: str
    """The part before the colon."""
    reaches: str
    example: str
    adapter: str = "chat"
    """`anthropic`, `responses`, `chat`, `google`, `local`; or `azure`, `bedrock`, `vertex`, which choose one."""
    extra: str = "openai"
    """What to install: glidepath[extra]."""
    form: str = "NAME"
    key: str = ""
    """The environment variable that holds its key; empty where no key is needed."""
    needs: tuple[str, ...] = ()
    """Other environment variables that it needs or uses."""
    address: str = ""
    sites: tuple[str, ...] = ()
    """Its own domains; one that starts with a dot includes subdomains. Only these are sent the key automatically."""
    prices: str | None = None
    """Its name in the genai-prices data."""
    quirks: Quirks = Quirks()

    def is_own_address(self, url: str) -> bool:
        """Whether an address is this host's own."""
        return any(is_vendor_address(url, site) for site in self.sites)


GATE_URL, GATE_VENDORS = "GLIDEPATH_GATE_URL", "GLIDEPATH_GATE_VENDORS"
_LEVELS = ("low", "medium", "high")
_DEEP = (*_LEVELS, "xhigh")
_REASONERS = r"o\d|gpt-([5-9]|\d\d)(?!.*chat)"
_OPENAI_QUIRKS = Quirks(
    cap="max_completion_tokens",
    most_stops=4,
    no_stop=_REASONERS,
    no_logprobs=_REASONERS,
    no_effort=r"gpt-[34]|chatgpt-|gpt-5.*-chat|ft:gpt-[34]",
    efforts=(
        (r"o\d", _LEVELS),
        (r"gpt-5-pro", ("high",)),
        (r"gpt-5\.\d-pro", ("medium", "high", "xhigh")),
        (r"gpt-5(\.1)?-codex(?!-max)", _LEVELS),
        (r"gpt-5\.\d-codex", _DEEP),
        (r"gpt-5(?!\.)", ("minimal", *_LEVELS)),
        (r"gpt-5\.1", ("none", *_LEVELS)),
        (r"gpt-5\.[2-5](?!\d)", ("none", *_DEEP)),
        (r"gpt-(5\.|6-(sol|luna))", ("none", *_DEEP, "max")),
        (r"gpt-", (*_DEEP, "max")),  # GPT-6 Astra has no `none`, and unknown models may not have it either
    ),
    fixed=_REASONERS,
    calm=r"gpt-5\.[1-4](?!\d)",
    plain_tools=r"gpt-(5\.([4-9]|\d\d)|[6-9]|\d\d)(?!.*chat)",
    takes=Takes(document=_DOCUMENTS, audio=tuple(SOUNDS), files_by_address=False),
)

_OPENAI = ModelHost(
    name="openai",
    reaches="OpenAI, the Responses endpoint",
    example="openai:gpt-5",
    adapter="responses",
    key="OPENAI_API_KEY",
    needs=("OPENAI_BASE_URL",),
    sites=("api.openai.com",),
    prices="openai",
    quirks=_OPENAI_QUIRKS,
)
_ROWS = (
    ModelHost(
        name="anthropic",
        reaches="Claude models",
        example="anthropic:claude-sonnet-4-5",
        adapter="anthropic",
        extra="anthropic",
        key="ANTHROPIC_API_KEY",
        needs=("ANTHROPIC_BASE_URL",),
        sites=("api.anthropic.com",),
        prices="anthropic",
    ),
    _OPENAI,
    replace(
        _OPENAI, name="openai-responses", reaches="the same, by its explicit name", example="openai-responses:gpt-5"
    ),
    replace(
        _OPENAI,
        name="openai-chat",
        reaches="OpenAI, the chat completions endpoint",
        example="openai-chat:gpt-4o",
        adapter="chat",
    ),
    ModelHost(
        name="openai-compatible",
        reaches="any server that speaks chat completions",
        example="openai-compatible:qwen3@http://127.0.0.1:11434/v1",
        form="NAME@ADDRESS",
    ),
    ModelHost(
        name="google",
        reaches="Gemini models",
        example="google:gemini-2.5-flash",
        adapter="google",
        extra="google",
        key="GEMINI_API_KEY",
        sites=(".googleapis.com",),
        prices="google",
    ),
    ModelHost(
        name="azure",
        reaches="Azure OpenAI, by the name of the deployment",
        example="azure:my-gpt-5",
        adapter="azure",
        form="DEPLOYMENT",
        key="AZURE_OPENAI_API_KEY",
        needs=("AZURE_OPENAI_ENDPOINT", "OPENAI_API_VERSION"),
        sites=(".openai.azure.com", ".services.ai.azure.com", ".cognitiveservices.azure.com"),
        prices="azure",
        quirks=_OPENAI_QUIRKS,
    ),
    ModelHost(
        name="bedrock",
        reaches="Amazon Bedrock: Claude by its own endpoint, other models by chat completions",
        example="bedrock:us.anthropic.claude-sonnet-4-5-20250929-v1:0",
        adapter="bedrock",
        extra="bedrock",
        key="AWS_BEARER_TOKEN_BEDROCK",
        needs=("AWS_REGION",),
        sites=(".amazonaws.com", ".api.aws"),
        prices="aws",
        quirks=Quirks(cap="max_completion_tokens", takes=Takes()),
    ),
    ModelHost(
        name="vertex",
        reaches="Vertex AI: Gemini and Claude models",
        example="vertex:gemini-2.5-pro",
        adapter="vertex",
        extra="vertex",
        key="GOOGLE_APPLICATION_CREDENTIALS",
        needs=("GOOGLE_CLOUD_PROJECT", "GOOGLE_CLOUD_LOCATION"),
        sites=(".googleapis.com",),
        prices="google",
    ),
    ModelHost(
        name="openrouter",
        reaches="OpenRouter: models of many vendors",
        example="openrouter:anthropic/claude-sonnet-4.5",
        form="VENDOR/NAME",
        key="OPENROUTER_API_KEY",
        address="https://openrouter.ai/api/v1",
        sites=("openrouter.ai",),
        prices="openrouter",
        quirks=Quirks(effort="reasoning", all_thoughts=True),
    ),
    ModelHost(
        name="groq",
        reaches="Groq",
        example="groq:llama-3.3-70b-versatile",
        key="GROQ_API_KEY",
        address="https://api.groq.com/openai/v1",
        sites=("api.groq.com",),
        prices="groq",
        # It refuses structured output together with streaming or tools.
        quirks=Quirks(
            cap="max_completion_tokens",
            most_stops=4,
            schema="words",
            logprobs=False,
            efforts=((r"qwen", ("none", "default")), (r"gpt-oss", _LEVELS)),
            takes=Takes(),
        ),
    ),
    ModelHost(
        name="deepseek",
        reaches="DeepSeek",
        example="deepseek:deepseek-chat",
        key="DEEPSEEK_API_KEY",
        address="https://api.deepseek.com/v1",
        sites=("api.deepseek.com",),
        prices="deepseek",
        quirks=Quirks(
            schema="json",
            most_stops=16,
            no_logprobs="deepseek-reasoner",  # it accepts any effort and rounds it
            thinking_switch=True,
            all_thoughts=True,
            takes=Takes(),
        ),
    ),
    ModelHost(
        name="mistral",
        reaches="Mistral",
        example="mistral:mistral-large-latest",
        key="MISTRAL_API_KEY",
        address="https://api.mistral.ai/v1",
        sites=("api.mistral.ai",),
        prices="mistral",
        quirks=Quirks(
            stream_options=False,
            seed="random_seed",
            short_ids=True,
            user_after_tool=False,
            logprobs=False,
            efforts=((r"mistral-large-4", _LEVELS), (r"", ("none", "high"))),
            takes=Takes(document=("application/pdf",), audio=("audio/",), plain_parts=True),
        ),
    ),
    ModelHost(
        name="xai",
        reaches="xAI",
        example="xai:grok-4",
        key="XAI_API_KEY",
        address="https://api.x.ai/v1",
        sites=("api.x.ai",),
        prices="x-ai",
        quirks=Quirks(
            cap="max_completion_tokens",
            no_stop=r"grok-(?!.*non-reasoning)(4|3-mini|code)",
            no_effort=r"grok-(3(?!-mini)|4(\.1|\.20(?!-multi))?(-|$)|code)",
            efforts=((r"grok-3-mini", ("low", "high")), (r"grok-4\.3", ("none", *_LEVELS)), (r"", _LEVELS)),
            takes=Takes(),
        ),
    ),
    ModelHost(
        name="ollama",
        reaches="Ollama on this machine",
        example="ollama:qwen3:8b",
        address="http://127.0.0.1:11434/v1",
        quirks=Quirks(
            named_choice=False,
            logprobs=False,
            efforts=((r"", ("none", *_LEVELS)),),
            takes=Takes(by_address=False),
        ),
    ),
    ModelHost(
        name="vllm",
        reaches="vLLM on this machine",
        example="vllm:Qwen/Qwen3-8B",
        address="http://127.0.0.1:8000/v1",
        quirks=Quirks(takes=Takes(audio=tuple(SOUNDS), video=("video/",))),
    ),
    ModelHost(
        name="lmstudio",
        reaches="LM Studio on this machine",
        example="lmstudio:qwen3-8b",
        address="http://127.0.0.1:1234/v1",
        quirks=Quirks(named_choice=False, takes=Takes()),
    ),
    ModelHost(
        name="llamacpp",
        reaches="a llama.cpp server on this machine",
        example="llamacpp:default",
        address="http://127.0.0.1:8080/v1",
        quirks=Quirks(named_choice=False, takes=Takes(audio=tuple(SOUNDS))),
    ),
    ModelHost(
        name="local",
        reaches="a small model on this machine, or any GGUF file",
        example="local:smollm2",
        adapter="local",
        extra="local",
    ),
)

HOSTS: Mapping[str, ModelHost] = {row.name: row for row in _ROWS}
"""Every host, by the part before the colon."""


def find_host(name: object) -> ModelHost:
    """The host of this name; raises `ConfigurationError` listing all hosts."""
    if not isinstance(name, str) or name not in HOSTS:
        raise ConfigurationError(f"host={name!r:.60} is not a host; known are {', '.join(sorted(HOSTS))}")
    return HOSTS[name]


def find_key(host: ModelHost, url: str, api_key: str | None) -> str | None:
    """The key for an address: the one given, else the host's from the environment, for its own addresses only.

    Only this function reads keys that the SDKs do not know. Raises `ConfigurationError` when a key is needed.
    """
    if api_key is not None or not host.key:
        return api_key
    if not host.is_own_address(url):
        raise ConfigurationError(
            f"{host.key} is sent to {' and '.join(_format_site(site) for site in host.sites)} only, and this is "
            "another "
            "address: pass api_key=, or use 'openai-compatible:NAME@ADDRESS' for a server that needs no key"
        )
    found = os.environ.get(host.key)
    if not found:
        raise ConfigurationError(
            f"there is no key for {host.name}: set the environment variable {host.key}, or pass api_key="
        )
    return found


def key_advice(host: ModelHost, *, given: bool, sent: bool = True) -> str:
    """What to check when a key is not accepted: names where the key came from."""
    if given:
        where = "api_key=" + (", or GLIDEPATH_API_KEY on the command line" if host.name == "openai-compatible" else "")
    elif not sent:
        where = "none was sent: pass api_key=, or set GLIDEPATH_API_KEY for openai-compatible: on the command line"
    else:
        where = host.key
    return f"check the model name and the key ({where})"


def matches_model(pattern: str, name: str) -> bool:
    """Whether a model's name, without its vendor, matches a pattern at its start."""
    return bool(pattern) and re.match(pattern, name.rpartition("/")[2]) is not None


def effort_for(quirks: Quirks, name: str, effort: str) -> str | None:
    """The nearest effort that this model accepts; None if it accepts none."""
    if matches_model(quirks.no_effort, name):
        return None
    bare = name.rpartition("/")[2]
    words = next((words for pattern, words in quirks.efforts if re.match(pattern, bare)), ())
    if not words or effort in words or effort not in REASONING:
        return effort
    place = REASONING.index(effort)
    places = {word: REASONING.index(word) if word in REASONING else REASONING.index("medium") for word in words}
    return min(words, key=lambda word: (abs(places[word] - place), -places[word]))


def takes_temperature(quirks: Quirks, name: str, reasoning: str | None) -> bool:
    """Whether to send a temperature: a model that reasons refuses it, unless reasoning can be turned off."""
    return not matches_model(quirks.fixed, name) or (
        matches_model(quirks.calm, name) and reasoning is not None and effort_for(quirks, name, reasoning) == "none"
    )


def has_probabilities(quirks: Quirks, name: str, reasoning: str | None) -> bool:
    """Whether a model reports the probabilities of its tokens: one that reasons does not."""
    if not quirks.logprobs or not matches_model(quirks.no_logprobs, name):
        return quirks.logprobs
    # The calm ones reason only if they are told to.
    return matches_model(quirks.calm, name) and (reasoning is None or effort_for(quirks, name, reasoning) == "none")


def read_variable(variable: str) -> str | None:
    """The value of an environment variable; None if it is missing or empty."""
    return os.environ.get(variable) or None


def is_behind_gate(url: str, vendor: str) -> bool:
    """Whether an address is a gate of ours behind which the vendor itself answers, as the gate has told its command."""
    gate, vendors = read_variable(GATE_URL), read_variable(GATE_VENDORS)
    return bool(gate and vendors) and vendor in str(vendors).split(",") and urlsplit(url)[:2] == urlsplit(gate)[:2]


def _format_site(site: str) -> str:
    return f"*{site}" if site.startswith(".") else site
