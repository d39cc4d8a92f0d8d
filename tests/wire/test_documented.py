"""Requests as each vendor documents them: what a vendor says is refused is not sent. Every row names its source.

No vendor was asked, and no page was opened on the web: sources were looked up in stored copies in November 2026, some
of them months older. Each row says how far its source was seen:

- `page`: the vendor's own text, in a stored copy of the page or in a copy of it that others keep
- `spec`: the vendor's SDK, source or specification
- `told`: only others say so: they quote the vendor, or show the error they got
- `unseen`: nothing was found. The request is one that a vendor takes either way, or the refusal is ours
"""

import re
from functools import cache
from typing import NamedTuple

import pytest

from glidepath.errors import RejectedError
from glidepath.messages import (
    AssistantMessage,
    FileBlock,
    ImageBlock,
    ReasoningBlock,
    TextBlock,
    ToolCall,
    ToolResultMessage,
    UserMessage,
)
from glidepath.models import (
    AnthropicModel,
    GoogleModel,
    ModelRequest,
    OpenAIChatModel,
    OpenAIResponsesModel,
    ToolSpec,
    resolve,
)

from .dialects import KEY, Anthropic
from .server import Answer, Wire, run


class Source(NamedTuple):
    seen: str
    address: str


def page(address):
    return Source("page", address)


def spec(address):
    return Source("spec", address)


def told(address):
    return Source("told", address)


def unseen(address):
    return Source("unseen", address)


HI = UserMessage("hi")
OBJECT = {"type": "object", "properties": {"q": {"type": "string"}}}
SPEC = ToolSpec("search", "Search.", OBJECT)
TOOLS = {"tools": (SPEC,)}
FORCED = {"tools": (SPEC,), "tool_choice": "required"}
ONE = {"tools": (SPEC,), "tool_choice": "search"}

CLAUDE = "https://platform.claude.com/docs/en/"
THINKING = f"{CLAUDE}build-with-claude/extended-thinking"
PER_MODEL = "https://github.com/anthropics/skills/blob/main/skills/claude-api/references/thinking-effort.md"
MESSAGES = f"{CLAUDE}api/messages/create"
BOUND = f"{CLAUDE}build-with-claude/preserved-thinking"
STRUCTURED = f"{CLAUDE}build-with-claude/structured-outputs"
VERTEX = "https://docs.cloud.google.com/vertex-ai/generative-ai/docs/partner-models/claude/structured_outputs"
CACHING = f"{CLAUDE}build-with-claude/prompt-caching"
OPENAI = "https://platform.openai.com/docs/"
REASONING = "https://developers.openai.com/api/docs/guides/reasoning"
GPT_5 = "https://developers.openai.com/api/docs/guides/latest-model"
EFFORTS = "https://learn.microsoft.com/javascript/api/@azure/ai-projects/reasoningeffort"
CHAT = f"{OPENAI}api-reference/chat/create"
RESPONSES = f"{OPENAI}api-reference/responses/create"
AZURE = "https://learn.microsoft.com/azure/foundry/openai/how-to/reasoning"
GEMINI = "https://ai.google.dev/gemini-api/docs/"
GEMINI_REST = "https://ai.google.dev/api/generate-content"
CALLING = "https://ai.google.dev/api/caching#FunctionCallingConfig"
FLASH = "https://docs.cloud.google.com/gemini-enterprise-agent-platform/models/guides/gemini-3-8-flash"
GROQ = "https://console.groq.com/docs/"
DEEPSEEK = "https://api-docs.deepseek.com/"
XAI = "https://docs.x.ai/docs/guides/reasoning"
GROK = "https://docs.x.ai/developers/model-capabilities/text/reasoning"
MISTRAL = "https://docs.mistral.ai/"
OLLAMA = "https://docs.ollama.com/api/openai-compatibility"
LMSTUDIO = "https://lmstudio.ai/docs/developer/openai-compat/tools"
VLLM = "https://docs.vllm.ai/en/latest/features/tool_calling/"
LLAMACPP = "https://github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md"
ROUTER = "https://openrouter.ai/docs/"


@cache
def claude(name):
    return AnthropicModel(name, api_key=KEY)


@cache
def hosted(name):
    return resolve(name, api_key=KEY)


@cache
def gemini(name):
    return GoogleModel(name, api_key=KEY)


def has(**fields):
    """The body has these fields, with these values; None: it does not have the field."""

    def check(body):
        for path, value in fields.items():
            found = body
            for part in path.split("__"):
                found = found.get(part) if isinstance(found, dict) else found[int(part)]
                if found is None:
                    break
            assert found == value, f"{path}: {found!r}"

    return check


def loop(*thoughts, vendor="openai-chat"):
    blocks = [ReasoningBlock(opaque=f'{{"at":[0,0],"item":{one}}}', vendor=vendor) for one in thoughts]
    reply = AssistantMessage((*blocks, ToolCall("call_1", "search", {})))
    return [HI, reply, ToolResultMessage("call_1", "search", "found")]


PAST = loop('{"type":"thinking","thinking":"hm","signature":"s"}', vendor="anthropic")
DROPS = {"block_binding": {"prefix_mismatch_behavior": "drop_block"}}
BOUNDED = ToolSpec(
    "pick",
    "Pick.",
    {
        "type": "object",
        "properties": {"n": {"type": "integer", "minimum": 1, "maximum": 9, "description": "How many."}},
        "required": ["n"],
    },
    strict=True,
)
ENDLESS = ToolSpec(
    "grow",
    "Grow.",
    {
        "type": "object",
        "properties": {"tree": {"$ref": "#/$defs/Tree"}},
        "required": ["tree"],
        "$defs": {
            "Tree": {"type": "object", "properties": {"child": {"$ref": "#/$defs/Tree"}}, "required": ["child"]},
        },
    },
    strict=True,
)
MANY = tuple(ToolSpec(f"tool{n}", "", OBJECT) for n in range(25))
UNIONS = tuple(
    ToolSpec(f"tool{n}", "", {"type": "object", "properties": {"q": {"type": ["string", "null"]}}}) for n in range(18)
)
FREE = {"type": "object", "properties": {"m": {"type": "object", "additionalProperties": True}}, "required": ["m"]}


DEEP = {
    "type": "object",
    "properties": {
        "rows": {
            "type": "array",
            "minItems": 3,
            "uniqueItems": True,
            "items": {
                "type": "object",
                "properties": {
                    "mail": {"type": "string", "format": "email", "maxLength": 9},
                    "code": {"oneOf": [{"type": "string", "format": "regex"}, {"type": "null"}]},
                    "minimum": {"type": "integer"},
                },
            },
        }
    },
}


def legal_names(found):
    def check(body):
        names = found(body)
        assert len(set(names)) == 2
        assert all(re.fullmatch(r"[a-zA-Z_][a-zA-Z0-9_-]{0,63}", name) for name in names)

    return check


def strict_ones(most):
    def check(body):
        assert [bool(one.get("strict")) for one in body["tools"]] == [n < most for n in range(len(body["tools"]))]

    return check


def told_in_words(body):
    assert "output_config" not in body
    assert "fits this schema" in body["system"][0]["text"]


def bounds_are_told(body):
    [made] = body["tools"]
    number = made["input_schema"]["properties"]["n"]
    assert number == {"type": "integer", "description": "How many. (minimum: 1, maximum: 9)"}
    assert made["strict"] is True


def unmarked_thoughts(body):
    assert all("cache_control" not in block for turn in body["messages"] for block in turn["content"][:-1])
    marks = str(body).count("cache_control")
    assert 1 <= marks <= 4


def unthought(body):
    assert body["thinking"] == {"type": "between_tools"}
    assert "signature" not in str(body["messages"])


def thoughts_of_all_loops(body):
    assert [one.get("reasoning_content") for one in body["messages"] if one["role"] == "assistant"] == ["hm", None]


ROWS = {
    # --- Anthropic
    "a forced call and thinking": (page(THINKING), claude("claude-sonnet-4-5"), {"reasoning": "high", **FORCED}, has(
        thinking={"type": "disabled"}, tool_choice={"type": "any"})),
    "no call and thinking": (page(THINKING), claude("claude-sonnet-4-5"), {
        "reasoning": "high", "tools": (SPEC,), "tool_choice": "none"}, has(
        thinking__type="enabled", tool_choice={"type": "none"})),
    "a temperature and thinking": (page(THINKING), claude("claude-sonnet-4-5"), {
        "reasoning": "high", "temperature": 0.2}, has(
        thinking={"type": "disabled"}, temperature=0.2)),
    "a budget is below the cap": (spec(THINKING), claude("claude-haiku-4-5"), {
        "reasoning": "max", "max_output_tokens": 4096}, has(thinking__budget_tokens=2048)),
    "a budget has at least 1,024 tokens": (spec(THINKING), claude("claude-haiku-4-5"), {
        "reasoning": "low", "max_output_tokens": 1500}, has(thinking={"type": "disabled"})),
    "a loop that began without thinking": (page(THINKING), claude("claude-sonnet-4-5"), {
        "messages": loop(), "reasoning": "high", **TOOLS}, has(thinking={"type": "disabled"})),
    "a budget where only adaptive thinking is known": (page(PER_MODEL),
        claude("claude-opus-4-8"), {"reasoning": "high"}, has(
        thinking={"type": "adaptive", "display": "summarized"}, output_config={"effort": "high"})),
    "a model that always thinks, turned off": (page(PER_MODEL), claude("claude-fable-5"), {"reasoning": "none"}, has(
        thinking=None)),
    "a model that always thinks, forced to call": (page(THINKING), claude("claude-mythos-5"), ONE, has(
        thinking=None, tool_choice={"type": "auto"})),
    "a model that thinks by default, forced to call": (page(PER_MODEL), claude("claude-sonnet-5"), FORCED, has(
        thinking={"type": "disabled"}, tool_choice={"type": "any"})),
    "a model that thinks by default": (page(PER_MODEL), claude("claude-opus-5"), TOOLS, has(thinking=None)),
    "a temperature where none is taken": (page(PER_MODEL), claude("claude-opus-4-7"),
        {"temperature": 0.2}, has(temperature=None)),
    "the same on Sonnet 5, on Bedrock": (page(PER_MODEL),
        claude("us.anthropic.claude-sonnet-5-v1:0"), {"temperature": 0.2}, has(temperature=None)),
    "a temperature where it is taken": (page(PER_MODEL), claude("claude-opus-4-6"), {"temperature": 0.2}, has(
        temperature=0.2)),
    "a temperature above 1": (spec(MESSAGES), claude("claude-sonnet-4-5"), {"temperature": 1.5},
        "temperature from 0 to 1"),
    "xhigh on 4.6": (page(PER_MODEL), claude("claude-opus-4-6"), {"reasoning": "xhigh"}, has(
        output_config={"effort": "high"})),
    "bounds in a strict tool": (spec(STRUCTURED), claude("claude-sonnet-4-5"), {"tools": (BOUNDED,)}, bounds_are_told),
    "a recursive strict tool": (told(STRUCTURED), claude("claude-sonnet-4-5"), {"tools": (ENDLESS,)}, has(
        tools__0__strict=None, tools__0__input_schema=ENDLESS.parameters)),
    "more than 20 strict tools": (page(STRUCTURED), claude("claude-sonnet-4-5"), {"tools": MANY, "strict_tools": True},
        strict_ones(20)),
    "more than 16 unions": (page(STRUCTURED), claude("claude-sonnet-4-5"), {"tools": UNIONS, "strict_tools": True},
        strict_ones(16)),
    "an output with free keys": (spec(STRUCTURED), claude("claude-sonnet-4-5"), {"output_schema": FREE}, told_in_words),
    "an output on a model without structured output": (page(VERTEX), claude("claude-opus-4-1"), {
        "output_schema": OBJECT}, told_in_words),
    "a closed output": (spec(STRUCTURED), claude("claude-sonnet-4-5"), {"output_schema": OBJECT}, has(
        output_config__format__type="json_schema", output_config__format__schema__additionalProperties=False)),
    "at most four cache marks, none on thoughts": (page(CACHING), AnthropicModel(
        "claude-sonnet-4-5", api_key=KEY, cache_breakpoints=4), {"system_prompt": "Be brief.", "reasoning": "high",
        "messages": [*loop('{"type":"thinking","thinking":"hm","signature":"s"}', vendor="anthropic"), HI], **TOOLS},
        unmarked_thoughts),
    "a cache of an hour": (spec(CACHING), AnthropicModel("claude-sonnet-4-5", api_key=KEY, cache="1h"), {
        "system_prompt": "Be brief."}, has(system__0__cache_control={"type": "ephemeral", "ttl": "1h"})),
    "a blank stop sequence": (told(MESSAGES), claude("claude-sonnet-4-5"), {"stop_sequences": (" ",)},
        "stop_sequences"),
    "a seed": (spec(MESSAGES), claude("claude-sonnet-4-5"), {"seed": 1}, "seed"),
    "tool names": (told(f"{CLAUDE}agents-and-tools/tool-use/define-tools"), claude("claude-sonnet-4-5"), {
        "tools": (ToolSpec("files/read.text", "", OBJECT),)}, has(tools__0__name="files_read_text_b4ce56e3")),
    "bounds deep in an output": (spec(STRUCTURED), claude("claude-sonnet-4-5"), {"output_schema": DEEP}, has(
        output_config__format__schema__properties__rows={
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "mail": {"type": "string", "format": "email", "description": "(maxLength: 9)"},
                    "code": {"anyOf": [{"type": "string", "description": '(format: "regex")'}, {"type": "null"}]},
                    "minimum": {"type": "integer"},
                },
                "required": ["mail", "code", "minimum"],
                "additionalProperties": False,
            },
            "description": "(minItems: 3, uniqueItems: true)",
        })),
    "Opus 5.5, turned off": (page(f"{CLAUDE}models/opus-5-5/whats-new-opus-5-5"), claude("claude-opus-5-5"), {
        "reasoning": "none"}, has(thinking={"type": "adaptive", **DROPS})),
    "Opus 5.5, forced to call": (page(f"{CLAUDE}models/opus-5-5/whats-new-opus-5-5"), claude("claude-opus-5-5"), ONE,
        has(thinking__type="adaptive", tool_choice={"type": "auto"})),
    "Sonnet 5.5, turned off": (page(f"{CLAUDE}models/sonnet-5-5/migration-guide"), claude("claude-sonnet-5-5"), {
        "reasoning": "none", "messages": PAST}, unthought),
    "Sonnet 5.5, forced to call": (page(f"{CLAUDE}models/sonnet-5-5/migration-guide"), claude("claude-sonnet-5-5"), {
        "reasoning": "high", **FORCED}, has(
        thinking__type="adaptive", tool_choice={"type": "auto"}, output_config={"effort": "high"})),
    "Haiku 5.5, turned off": (page(f"{CLAUDE}models/haiku-5-5/migration-guide"), claude("claude-haiku-5-5"), {
        "reasoning": "none"}, has(thinking={"type": "disabled"}, output_config=None)),
    "a temperature on Haiku 5.5": (page(f"{CLAUDE}models/haiku-5-5/migration-guide"), claude("claude-haiku-5-5"), {
        "temperature": 0.2}, has(temperature=None)),
    "thoughts before which something has changed": (page(BOUND), claude("claude-fable-5-1"), {"messages": PAST}, has(
        thinking={"type": "adaptive", **DROPS})),
    "the same, where nothing is checked": (page(BOUND), claude("claude-opus-5"), {"messages": PAST}, has(
        thinking=None)),
    "a Claude nobody knows, turned off and forced": (unseen(f"{CLAUDE}about-claude/models/overview"),
        claude("claude-opus-7"), {"reasoning": "none", **FORCED}, has(
        thinking__type="adaptive", tool_choice={"type": "auto"})),
    # --- OpenAI, Azure
    "tool names of OpenAI": (spec(CHAT), hosted("openai-chat:gpt-4o"), {
        "tools": (ToolSpec("files/read.text", "", OBJECT), ToolSpec("a" * 65, "", OBJECT))}, legal_names(
        lambda body: [one["function"]["name"] for one in body["tools"]])),
    "tool names of Responses": (told(RESPONSES), hosted("openai:gpt-4o"), {
        "tools": (ToolSpec("files/read.text", "", OBJECT), ToolSpec("a" * 65, "", OBJECT))}, legal_names(
        lambda body: [one["name"] for one in body["tools"]])),
    "the cap of a reasoning model": (spec(REASONING), hosted("openai-chat:o4-mini"), {"max_output_tokens": 99}, has(
        max_completion_tokens=99, max_tokens=None)),
    "the cap on Azure": (page(AZURE), OpenAIChatModel("mine", host="azure", api_key=KEY,
        base_url="https://mine.openai.azure.com"), {"max_output_tokens": 99}, has(max_completion_tokens=99)),
    "a temperature on gpt-5": (page(GPT_5), hosted("openai:gpt-5"), {"temperature": 0.2}, has(temperature=None)),
    "a temperature on o3, chat": (page(AZURE), hosted("openai-chat:o3"), {"temperature": 0.2}, has(temperature=None)),
    "a temperature on gpt-5.2 that does not reason": (page(GPT_5), hosted("openai:gpt-5.2"), {
        "temperature": 0.2, "reasoning": "none"}, has(temperature=0.2, reasoning={"effort": "none"})),
    "a temperature on gpt-5.2 that reasons": (page(GPT_5), hosted("openai:gpt-5.2"), {
        "temperature": 0.2, "reasoning": "low"}, has(temperature=None)),
    "a temperature on gpt-4o": (spec(CHAT), hosted("openai-chat:gpt-4o"), {"temperature": 0.2}, has(temperature=0.2)),
    "a temperature on a gateway's gpt-5": (page(GPT_5), hosted("openrouter:openai/gpt-5"), {"temperature": 0.2}, has(
        temperature=None)),
    "an effort on gpt-4o": (told(REASONING), hosted("openai:gpt-4o"), {"reasoning": "low"}, has(reasoning=None)),
    "no effort on gpt-5": (spec(EFFORTS), hosted("openai:gpt-5-mini"), {"reasoning": "none"}, has(
        reasoning={"effort": "minimal"})),
    "minimal effort on o3": (page(GPT_5), hosted("openai-chat:o3"), {"reasoning": "minimal"}, has(
        reasoning_effort="low")),
    "the highest effort on gpt-5.1": (spec(EFFORTS), hosted("openai:gpt-5.1"), {"reasoning": "xhigh"}, has(
        reasoning={"effort": "high"})),
    "stop sequences of a reasoning model": (spec(CHAT), hosted("openai-chat:o3"), {"stop_sequences": ("END",)},
        "stop_sequences"),
    "five stop sequences": (spec(CHAT), hosted("openai-chat:gpt-4o"), {"stop_sequences": tuple("abcde")}, "at most 4"),
    "stop sequences of Responses": (spec(RESPONSES),
        hosted("openai:gpt-4o"), {"stop_sequences": ("END",)}, "stop_sequences"),
    "a seed of Responses": (spec(RESPONSES), hosted("openai:gpt-4o"), {"seed": 1}, "seed"),
    "probabilities of a reasoning model": (page(GPT_5), hosted("openai:gpt-5"), {"logprobs": 2}, "logprobs"),
    "metadata that is not stored, chat": (told(CHAT), hosted("openai-chat:gpt-4o"), {"metadata": {"a": "b"}}, has(
        metadata=None)),
    "metadata, Responses": (spec(RESPONSES), hosted("openai:gpt-4o"), {"metadata": {"a": "b"}, "user": "u"}, has(
        metadata={"a": "b"}, safety_identifier="u")),
    "stop sequences of gpt-5": (told(CHAT), hosted("openai-chat:gpt-5"), {"stop_sequences": ("END",)},
        "stop_sequences"),
    "probabilities of gpt-5.2 that reasons": (page(GPT_5), hosted("openai:gpt-5.2"), {
        "logprobs": 2, "reasoning": "low"}, "logprobs"),
    "probabilities of gpt-5.2 that does not reason": (page(GPT_5), hosted("openai:gpt-5.2"), {"logprobs": 2}, has(
        top_logprobs=2)),
    "minimal effort on gpt-5.2": (told(GPT_5), hosted("openai:gpt-5.2"), {"reasoning": "minimal"}, has(
        reasoning={"effort": "low"})),
    "the highest effort on gpt-5.4": (page(GPT_5), hosted("openai:gpt-5.4"), {"reasoning": "max"}, has(
        reasoning={"effort": "xhigh"})),
    "a low effort on gpt-5-pro": (spec(EFFORTS), hosted("openai:gpt-5-pro"), {"reasoning": "low"}, has(
        reasoning={"effort": "high"})),
    "no effort on GPT-6 Astra": (told(REASONING), hosted("openai:gpt-6-astra"), {"reasoning": "none"}, has(
        reasoning={"effort": "low"})),
    "no effort on GPT-6 Luna": (told(REASONING), hosted("openai:gpt-6-luna"), {"reasoning": "none"}, has(
        reasoning={"effort": "none"})),
    "a temperature on GPT-6": (told(GPT_5), hosted("openai:gpt-6-luna"), {"temperature": 0.2, "reasoning": "none"}, has(
        temperature=None)),
    "the cap of GPT-6 behind a gateway": (told(GPT_5), hosted("openrouter:openai/gpt-6-astra"), {
        "max_output_tokens": 99}, has(max_completion_tokens=99, max_tokens=None)),
    "tools on gpt-5.6, chat": (told(CHAT), hosted("openai-chat:gpt-5.6-luna"), TOOLS, has(reasoning_effort="none")),
    "tools and an effort on gpt-5.4, chat": (told(CHAT), hosted("openai-chat:gpt-5.4"), {"reasoning": "high", **TOOLS},
        has(reasoning_effort="none")),
    "an effort on gpt-5.4, chat": (page(GPT_5), hosted("openai-chat:gpt-5.4"), {"reasoning": "high"}, has(
        reasoning_effort="high")),
    "tools on GPT-6 Astra, chat": (told(CHAT), hosted("openai-chat:gpt-6-astra"), TOOLS, has(reasoning_effort=None)),
    "tools and an effort on gpt-5.6": (told(CHAT), hosted("openai:gpt-5.6-luna"), {"reasoning": "high", **TOOLS}, has(
        reasoning={"effort": "high"})),
    # --- Gemini, Vertex AI
    "six stop sequences": (spec(GEMINI_REST),
        gemini("gemini-2.5-flash"), {"stop_sequences": tuple("abcdef")}, "at most 5"),
    "thinking off on 2.5 Pro": (told(f"{GEMINI}thinking"), gemini("gemini-2.5-pro"), {"reasoning": "none"}, has(
        generationConfig__thinkingConfig={"thinkingBudget": 128})),
    "thinking off on 2.5 Flash": (spec(f"{GEMINI}thinking"), gemini("gemini-2.5-flash"), {"reasoning": "none"}, has(
        generationConfig__thinkingConfig={"thinkingBudget": 0})),
    "thinking on 2.0": (page(f"{GEMINI}thinking"), gemini("gemini-2.0-flash"), {"reasoning": "high"}, has(
        generationConfig=None)),
    "thinking off on 3 Pro": (told(f"{GEMINI}gemini-3"), gemini("gemini-3-pro-preview"), {"reasoning": "none"}, has(
        generationConfig__thinkingConfig={"thinkingLevel": "low"})),
    "medium on 3 Pro": (told(f"{GEMINI}gemini-3"), gemini("gemini-3-pro-preview"), {"reasoning": "medium"}, has(
        generationConfig__thinkingConfig__thinkingLevel="high")),
    "medium on 3.1 Pro": (page(FLASH), gemini("gemini-3.1-pro-preview"), {"reasoning": "medium"}, has(
        generationConfig__thinkingConfig__thinkingLevel="medium")),
    "thinking off on 3 Flash": (told(f"{GEMINI}gemini-3"), gemini("gemini-3-flash"), {"reasoning": "none"}, has(
        generationConfig__thinkingConfig={"thinkingLevel": "minimal"})),
    "thinking off on 3.8 Flash": (page(FLASH), gemini("gemini-3.8-flash"), {"reasoning": "none"}, has(
        generationConfig__thinkingConfig={"thinkingLevel": "low"})),
    "thinking off on 3.6 Flash": (page(FLASH.replace("3-8", "3-7")), gemini("gemini-3.6-flash"), {
        "reasoning": "none"}, has(generationConfig__thinkingConfig={"thinkingLevel": "minimal"})),
    "a tool that is named": (spec(CALLING), gemini("gemini-2.5-flash"), ONE, has(
        toolConfig__functionCallingConfig={"mode": "ANY", "allowedFunctionNames": ["search"]})),
    "any tool": (spec(CALLING),
        gemini("gemini-2.5-flash"), FORCED, has(toolConfig__functionCallingConfig={"mode": "ANY"})),
    "no tool": (spec(CALLING), gemini("gemini-2.5-flash"), {"defined_tools": (SPEC,)}, has(
        toolConfig__functionCallingConfig={"mode": "NONE"})),
    "strict tools": (spec(CALLING), gemini("gemini-2.5-flash"), {"strict_tools": True, **TOOLS}, has(
        toolConfig__functionCallingConfig={"mode": "VALIDATED"})),
    "tools and a schema on 2.5": (page(f"{GEMINI}structured-output"), gemini("gemini-2.5-flash"), {
        "output_schema": OBJECT, **TOOLS}, has(generationConfig=None)),
    "tool names of Gemini": (spec(f"{GEMINI}function-calling"), gemini("gemini-2.5-flash"), {
        "tools": (ToolSpec("9/lives", "", OBJECT), ToolSpec("a" * 65, "", OBJECT))}, legal_names(
        lambda body: [one["name"] for one in body["tools"][0]["functionDeclarations"]])),
    # --- compatible hosts
    "a schema and tools on Groq": (page(f"{GROQ}structured-outputs"), hosted("groq:llama-3.3-70b-versatile"), {
        "output_schema": OBJECT, **TOOLS}, has(response_format=None)),
    "probabilities on Groq": (page(f"{GROQ}openai"),
        hosted("groq:llama-3.3-70b-versatile"), {"logprobs": 1}, "logprobs"),
    "an effort of Qwen on Groq": (spec(f"{GROQ}reasoning"), hosted("groq:qwen/qwen3-32b"), {"reasoning": "high"}, has(
        reasoning_effort="default")),
    "the highest effort of gpt-oss on Groq": (spec(f"{GROQ}reasoning"), hosted("groq:openai/gpt-oss-120b"), {
        "reasoning": "max"}, has(reasoning_effort="high")),
    "a schema on DeepSeek": (page(f"{DEEPSEEK}guides/json_mode"), hosted("deepseek:deepseek-chat"), {
        "output_schema": OBJECT}, has(response_format={"type": "json_object"})),
    "thinking off on DeepSeek": (page(f"{DEEPSEEK}guides/thinking_mode"), hosted("deepseek:deepseek-v4-pro"), {
        "reasoning": "none"}, has(thinking={"type": "disabled"}, reasoning_effort=None)),
    "a low effort on DeepSeek": (page(f"{DEEPSEEK}guides/thinking_mode"), hosted("deepseek:deepseek-v4-pro"), {
        "reasoning": "low"}, has(reasoning_effort="low")),
    "the highest effort on DeepSeek": (page(f"{DEEPSEEK}guides/thinking_mode"), hosted("deepseek:deepseek-v4-pro"), {
        "reasoning": "max"}, has(reasoning_effort="max")),
    "a forced call on DeepSeek": (told(f"{DEEPSEEK}guides/thinking_mode"), hosted("deepseek:deepseek-v4-pro"), {
        "reasoning": "high", **FORCED}, has(
        thinking={"type": "disabled"}, tool_choice="required", reasoning_effort=None)),
    "a last call on DeepSeek": (told(f"{DEEPSEEK}guides/thinking_mode"), hosted("deepseek:deepseek-v4-pro"), {
        "defined_tools": (SPEC,)}, has(thinking=None, tool_choice="auto")),
    "thoughts of an earlier loop on DeepSeek": (told(f"{DEEPSEEK}guides/thinking_mode"),
        hosted("deepseek:deepseek-v4-pro"), {
        "messages": [*loop('{"reasoning_content":"hm"}'), AssistantMessage((TextBlock("Done."),)), HI]},
        thoughts_of_all_loops),
    "probabilities of deepseek-reasoner": (page(f"{DEEPSEEK}guides/reasoning_model"),
        hosted("deepseek:deepseek-reasoner"), {
        "logprobs": 1}, "logprobs"),
    "seventeen stop sequences on DeepSeek": (page(f"{DEEPSEEK}api/create-chat-completion"),
        hosted("deepseek:deepseek-chat"),
        {"stop_sequences": tuple("abcdefghijklmnopq")}, "at most 16"),
    "stop sequences of Grok 4": (page(XAI), hosted("xai:grok-4"), {"stop_sequences": ("END",)}, "stop_sequences"),
    "an effort of Grok 4": (page(XAI), hosted("xai:grok-4"), {"reasoning": "high"}, has(reasoning_effort=None)),
    "an effort of Grok 3": (page(XAI), hosted("xai:grok-3"), {"reasoning": "high"}, has(reasoning_effort=None)),
    "an effort of Grok 4.1 fast": (unseen(XAI),
        hosted("xai:grok-4-1-fast"), {"reasoning": "high"}, has(reasoning_effort=None)),
    "a medium effort of Grok 3 mini": (page(XAI), hosted("xai:grok-3-mini"), {"reasoning": "medium"}, has(
        reasoning_effort="high")),
    "an effort of Grok 4.3": (page(GROK),
        hosted("xai:grok-4.3"), {"reasoning": "medium"}, has(reasoning_effort="medium")),
    "no effort of Grok 4.3": (page(GROK), hosted("xai:grok-4.3"), {"reasoning": "none"}, has(reasoning_effort="none")),
    "stop sequences of a Grok that does not reason": (page(GROK), hosted("xai:grok-4.20-non-reasoning"), {
        "stop_sequences": ("END",)}, has(stop=["END"])),
    "no effort on Mistral Large 4": (page(f"{MISTRAL}inference/conversations/reasoning"),
        hosted("mistral:mistral-large-4-0"), {"reasoning": "none"}, has(reasoning_effort="low")),
    "a seed on Mistral": (told(f"{MISTRAL}api/endpoint/chat"), hosted("mistral:mistral-large-latest"), {"seed": 7}, has(
        random_seed=7, seed=None, stream_options=None)),
    "a low effort on Mistral": (page(f"{MISTRAL}capabilities/reasoning/adjustable"),
        hosted("mistral:mistral-small-latest"), {
        "reasoning": "low"}, has(reasoning_effort="high")),
    "no effort on Mistral": (page(f"{MISTRAL}capabilities/reasoning/adjustable"),
        hosted("mistral:mistral-small-latest"), {
        "reasoning": "none"}, has(reasoning_effort="none")),
    "probabilities on Mistral": (told(f"{MISTRAL}api/endpoint/chat"),
        hosted("mistral:mistral-large-latest"), {"logprobs": 1},
        "logprobs"),
    "a document on Mistral": (told(f"{MISTRAL}capabilities/document_ai/document_qna"),
        hosted("mistral:mistral-small-latest"),
        {"messages": [UserMessage((FileBlock("application/pdf", url="https://e.org/a.pdf"),))]}, has(
        messages__0__content=[{"type": "document_url", "document_url": "https://e.org/a.pdf"}])),
    "a document's bytes on Mistral": (told(f"{MISTRAL}capabilities/document_ai/basic_ocr"),
        hosted("mistral:mistral-small-latest"), {"messages": [UserMessage((FileBlock("application/pdf", b"%PDF"),))]},
        has(messages__0__content=[
            {"type": "document_url", "document_url": "data:application/pdf;base64,JVBERg=="}])),
    "a recording on Mistral": (told(f"{MISTRAL}capabilities/audio"),
        hosted("mistral:voxtral-mini-latest"), {"messages": [
        UserMessage((FileBlock("audio/mpeg", b"ID3"), FileBlock("audio/mpeg", url="https://e.org/a.mp3")))]}, has(
        messages__0__content=[
            {"type": "input_audio", "input_audio": "SUQz"},
            {"type": "input_audio", "input_audio": "https://e.org/a.mp3"}])),
    "a spreadsheet on Mistral": (unseen(f"{MISTRAL}capabilities/document_ai/document_qna"),
        hosted("mistral:mistral-small-latest"), {"messages": [UserMessage((FileBlock("text/csv", b"a,b"),))]},
        "text/csv"),
    "a tool that is named on Ollama": (page(OLLAMA), hosted("ollama:qwen3:8b"), ONE, has(tool_choice="required")),
    "minimal effort on Ollama": (page(OLLAMA), hosted("ollama:gpt-oss:20b"), {"reasoning": "minimal"}, has(
        reasoning_effort="low")),
    "probabilities on Ollama": (page(OLLAMA), hosted("ollama:qwen3:8b"), {"logprobs": 1}, "logprobs"),
    "a picture by address on Ollama": (page(OLLAMA), hosted("ollama:qwen3-vl:8b"), {"messages": [UserMessage((
        ImageBlock("image/png", url="https://e.org/a.png"),))]}, "by url"),
    "a tool that is named on LM Studio": (told(LMSTUDIO),
        hosted("lmstudio:qwen3-8b"), ONE, has(tool_choice="required")),
    "a tool that is named on vLLM": (page(VLLM), hosted("vllm:Qwen/Qwen3-8B"), ONE, has(
        tool_choice={"type": "function", "function": {"name": "search"}})),
    "the cap on llama.cpp": (page(LLAMACPP), hosted("llamacpp:default"), {"max_output_tokens": 99}, has(max_tokens=99)),
    "an effort on OpenRouter": (page(f"{ROUTER}use-cases/reasoning-tokens"),
        hosted("openrouter:anthropic/claude-sonnet-4.5"),
        {"reasoning": "high"}, has(reasoning={"effort": "high"}, reasoning_effort=None)),
}  # fmt: skip


@pytest.mark.parametrize("row", ROWS)
def test_a_request_is_what_the_page_of_its_vendor_takes(row):
    _, model, fields, expected = ROWS[row]
    request = ModelRequest(**{"messages": [HI], **fields})
    if isinstance(expected, str):
        with pytest.raises(RejectedError, match=expected):
            model._body(request)
    else:
        expected(model._body(request))


@pytest.mark.parametrize(
    ("headers", "sent"),
    [
        (None, "thinking-binding-controls-2026-08-01"),
        ({"Anthropic-Beta": "mine-1"}, "mine-1,thinking-binding-controls-2026-08-01"),
    ],
    ids=["alone", "beside mine"],
)
def test_the_setting_that_drops_thoughts_goes_with_its_beta(headers, sent):
    async def ask():
        async with Wire([Answer([*Anthropic().text("Hi"), *Anthropic().end()])]) as wire:
            model = AnthropicModel("claude-opus-5-5", api_key=KEY, base_url=wire.url, headers=headers)
            model.usage_is_billed = True  # the server stands for Anthropic's own
            async for _ in model.stream(ModelRequest(messages=PAST)):
                pass
            await model.aclose()
            return wire.requests[0]

    assert run(ask).headers["anthropic-beta"] == sent


def test_another_host_is_not_sent_the_setting_that_drops_thoughts():
    model = AnthropicModel("claude-opus-5-5", api_key=KEY, base_url="http://127.0.0.1:9")
    assert "thinking" not in model._body(ModelRequest(messages=PAST))


def test_every_row_names_a_page_and_every_vendor_has_rows():
    assert all(source.address.startswith("https://") for source, *_ in ROWS.values())
    hosts = {model.host for _, model, *_ in ROWS.values()}
    assert hosts >= {"anthropic", "openai-chat", "openai", "azure", "google", "openrouter", "groq", "deepseek"}
    assert hosts >= {"mistral", "xai", "ollama", "lmstudio", "vllm", "llamacpp"}


@pytest.mark.parametrize(
    ("model", "request_"),
    [
        (AnthropicModel(api_key=KEY, name="claude-opus-4-8"), {"temperature": 0.2}),
        (AnthropicModel(api_key=KEY, name="claude-fable-5"), {"reasoning": "none"}),
        (AnthropicModel(api_key=KEY, name="claude-fable-5"), FORCED),
        (AnthropicModel(api_key=KEY, name="claude-sonnet-4-5"), {"tools": MANY, "strict_tools": True}),
        (OpenAIResponsesModel("gpt-5", api_key=KEY), {"temperature": 0.2}),
        (OpenAIResponsesModel("gpt-4o", api_key=KEY), {"reasoning": "low"}),
        (OpenAIChatModel("o3", api_key=KEY), {"temperature": 0.2}),
        (OpenAIChatModel("deepseek-v4-pro", api_key=KEY, host="deepseek"), {"reasoning": "high", **FORCED}),
        (OpenAIChatModel("grok-4", api_key=KEY, host="xai"), {"reasoning": "low"}),
        (GoogleModel(api_key=KEY, name="gemini-2.0-flash"), {"reasoning": "low"}),
        (AnthropicModel(api_key=KEY, name="claude-opus-5-5"), {"reasoning": "none"}),
        (AnthropicModel(api_key=KEY, name="claude-sonnet-5-5"), FORCED),
        (OpenAIChatModel("gpt-5.4", api_key=KEY), {"reasoning": "high", **TOOLS}),
    ],
    ids=[
        "cool claude",
        "claude off",
        "claude forced",
        "claude strict",
        "gpt-5",
        "gpt-4o",
        "o3",
        "deepseek",
        "grok",
        "gemini",
        "opus 5.5 off",
        "sonnet 5.5 forced",
        "gpt-5.4 with tools",
    ],
)
def test_what_is_left_out_is_logged_once(model, request_, caplog):
    for _ in range(2):
        model._body(ModelRequest(**{"messages": [HI], **request_}))
    (logged,) = [record.message for record in caplog.records]
    assert repr(model) in logged
