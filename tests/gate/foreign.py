"""Small agents that know nothing of glidepath: a loop around a vendor's own SDK, with one tool."""

import asyncio
import functools
from contextlib import asynccontextmanager

import anthropic
import openai

from glidepath import Limits
from glidepath.gate import Gate, Upstream
from glidepath.testing.upstream import ScriptedUpstream

TOOL = "lookup"
SCHEMA = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}
RESULT = "Result of the lookup, with a few words of text so that a conversation grows. " * 4


class Flight:
    """What a loop saw: its last text, and how many calls it made."""

    def __init__(self):
        self.text = ""
        self.calls = 0
        self.results = 0


async def fly_anthropic(url, key, *, headers=None, **options):
    async with anthropic.AsyncAnthropic(base_url=url, api_key=key, max_retries=0, default_headers=headers) as client:
        return await _loop_anthropic(client, **options)


async def _loop_anthropic(client, *, task="Do the work.", most=60, model="claude-opus-5-5", **options):
    tools = [{"name": TOOL, "description": "Look something up.", "input_schema": SCHEMA}]
    messages, flight = [{"role": "user", "content": task}], Flight()
    for _ in range(most):
        async with client.messages.stream(
            model=model, max_tokens=64_000, messages=messages, tools=tools, **options
        ) as stream:
            reply = await stream.get_final_message()
        flight.calls += 1
        flight.text = "".join(block.text for block in reply.content if block.type == "text")
        asked = [block for block in reply.content if block.type == "tool_use"]
        if not asked:
            return flight
        messages.append(
            {"role": "assistant", "content": [block.model_dump(exclude_none=True) for block in reply.content]}
        )
        results = [{"type": "tool_result", "tool_use_id": block.id, "content": RESULT} for block in asked]
        messages.append({"role": "user", "content": results})
        flight.results += len(results)
    return flight


async def fly_chat(url, key, *, headers=None, **options):
    address = f"{url}/v1"
    async with openai.AsyncOpenAI(base_url=address, api_key=key, max_retries=0, default_headers=headers) as client:
        return await _loop_chat(client, **options)


async def _loop_chat(client, *, task="Do the work.", most=60, model="gpt-4o-mini", **options):
    tools = [{"type": "function", "function": {"name": TOOL, "description": "Look it up.", "parameters": SCHEMA}}]
    messages, flight = [{"role": "user", "content": task}], Flight()
    for _ in range(most):
        reply = await client.chat.completions.create(model=model, messages=messages, tools=tools, **options)
        said = reply.choices[0].message
        flight.calls += 1
        flight.text = said.content or ""
        if not said.tool_calls:
            return flight
        messages.append(said.model_dump(exclude_none=True))
        for call in said.tool_calls:
            messages.append({"role": "tool", "tool_call_id": call.id, "content": RESULT})
            flight.results += 1
    return flight


async def fly_responses(url, key, *, headers=None, **options):
    address = f"{url}/v1"
    async with openai.AsyncOpenAI(base_url=address, api_key=key, max_retries=0, default_headers=headers) as client:
        return await _loop_responses(client, **options)


async def _loop_responses(client, *, task="Do the work.", most=60, model="gpt-4.1", **options):
    tools = [{"type": "function", "name": TOOL, "description": "Look it up.", "parameters": SCHEMA, "strict": False}]
    items, flight = [{"role": "user", "content": task}], Flight()
    for _ in range(most):
        reply = await client.responses.create(model=model, input=items, tools=tools, store=False, **options)
        flight.calls += 1
        flight.text = reply.output_text
        asked = [item for item in reply.output if item.type == "function_call"]
        if not asked:
            return flight
        items += [item.model_dump(exclude_none=True) for item in reply.output]
        items += [{"type": "function_call_output", "call_id": item.call_id, "output": RESULT} for item in asked]
        flight.results += len(asked)
    return flight


LOOPS = {"anthropic": fly_anthropic, "openai-chat": fly_chat, "openai-responses": fly_responses}


KEY = "sk-upstream-0123456789"
VENDORS = ("anthropic", "openai", "gemini")


def in_real_time(test):
    """Run a coroutine test on a plain event loop: sockets know no virtual time."""

    @functools.wraps(test)
    def run(*given, **named):
        asyncio.run(asyncio.wait_for(test(*given, **named), 60))

    return run


class Flown:
    """A gate and the scripted upstream behind it."""

    def __init__(self, gate, up):
        self.gate = gate
        self.up = up
        self.url = gate.url
        self.key = gate.key

    def report(self):
        return self.gate.report()

    def session(self, name="run-1"):
        """The session of a run."""
        return next(line.sessions[name] for line in self.gate.governor._lines.values())

    def assert_within(self, tokens):
        """The upstream's own count is the truth."""
        used = self.up.usage
        assert used.input + used.output <= tokens, used
        assert self.report()["tokens"] >= used.input + used.output


@asynccontextmanager
async def fly_behind(behavior="loop", *, line="run-1", scripted=None, make_governor=None, **limits):
    """A gate with these limits before an upstream that behaves like this."""
    async with ScriptedUpstream(behavior, bodies=True, **(scripted or {})) as up:
        upstreams = [Upstream(name, name, up.url, "swap", "env:UPSTREAM_KEY") for name in VENDORS]
        governor = None if make_governor is None else make_governor(upstreams)
        settings = {"line": line, "environ": {"UPSTREAM_KEY": KEY}, "governor": governor}
        async with Gate(Limits(**limits), upstreams, **settings) as gate:
            yield Flown(gate, up)
