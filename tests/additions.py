"""Additions to the package, as a newcomer would make them: what "Where do I add ..." in docs/house-tour.md promises.

An addition is a few insertions, each before a line of a module. The modules are imported here, so that a module that
moves takes its addition along.
"""

from typing import NamedTuple

from glidepath.agent import config, limits
from glidepath.guards import constraints
from glidepath.models import hosts
from glidepath.run import state
from glidepath.values import events


class Insertion(NamedTuple):
    """Text that goes before the first line of a module that begins like this."""

    module: object
    before: str
    text: str


class Addition(NamedTuple):
    """What is added, in at most how many files, the scripts that follow, how it is used, and the tests near it."""

    files: int
    insertions: tuple[Insertion, ...]
    scripts: tuple[str, ...]
    use: str
    tests: tuple[str, ...]


LIMIT = Addition(
    files=4,
    insertions=(
        Insertion(
            limits,
            "    max_depth: int",
            '    max_pictures: int | None = setting("int?", "pictures that tools may return", default=None)\n',
        ),
        Insertion(constraints, '    "TimeoutConstraint",', '    "PictureLimitConstraint",\n'),
        Insertion(
            constraints,
            "class TimeoutConstraint",
            '''class PictureLimitConstraint(_BuiltIn):
    """At most this many pictures in the results of tools; graceful."""

    limit = "max_pictures"

    def __init__(self, max_pictures: int) -> None:
        _check_positive(max_pictures, "max_pictures")
        self.max_pictures = max_pictures

    def check(self, context: ResourceContext) -> ResourceValidation:
        """Violated when that many have come."""
        from glidepath.messages import ImageBlock

        own = [context.messages[place] for place in range(context.first_new, len(context.messages))]
        contents = [message.content for message in own if message.role == "tool_result"]
        seen = sum(isinstance(block, ImageBlock) for content in contents for block in content)
        if seen < self.max_pictures:
            return _OK
        return ResourceValidation.violation(f"the limit of {self.max_pictures} pictures is reached", pictures=seen)


''',
        ),
    ),
    scripts=("make_keywords", "make_settings_table", "make_surface"),
    use="""
import asyncio
from glidepath import Agent, AgentBuilder, ConfigurationError, Limits, tool
from glidepath.apps.cli.settings import BY_KEY
from glidepath.guards.constraints import PictureLimitConstraint
from glidepath.messages import ImageBlock
from glidepath.sessions import MemoryStore
from glidepath.testing import ScriptedModel, call, say

@tool
async def shoot(n: int):
    "Take a picture."
    return [ImageBlock("image/png", b"x")]

async def main():
    store = MemoryStore()
    model = ScriptedModel([call("shoot", n=1), call("shoot", n=2), call("shoot", n=3), say("landed")])
    agent = Agent(model=model, tools=[shoot], limits=Limits(max_pictures=2, max_iterations=9), store=store)
    result = await agent.run("go", session="s")
    assert result.cause.source == "PictureLimitConstraint", result
    assert result.tool_calls == 2, result

asyncio.run(main())
try:
    Limits(max_pictures=0)
except ConfigurationError as error:
    assert "Limits.max_pictures" in str(error)
assert AgentBuilder().max_pictures(3) is not None
assert BY_KEY["limits.max_pictures"].help == "pictures that tools may return"
""",
    tests=("tests/agent/test_builder.py", "tests/test_bad_input.py", "tests/constraints/test_built_in.py"),
)

EVENT = Addition(
    files=2,
    insertions=(
        Insertion(events, '    "RetryScheduled",', '    "PictureReceived",\n'),
        Insertion(
            events,
            "class StreamStarted",
            '''class PictureReceived(Event, frozen=True, gc=False, tag=True):
    """A message with pictures joined the transcript; `bytes_seen` is what all of them take."""

    bytes_seen: int
    kinds: tuple[str, ...] = ()


''',
        ),
        Insertion(
            state, "from glidepath.plugins.hook_table import", "from glidepath.values.events import PictureReceived\n"
        ),
        Insertion(
            state,
            "        emit = self.voice.emit\n        if emit is not None:\n            emit(MessageAdded",
            "        if transcript.picture_bytes:\n            self.emit(PictureReceived, transcript.picture_bytes)\n",
        ),
    ),
    scripts=("make_event_table", "make_surface"),
    use="""
import asyncio
from glidepath import Agent, Limits
from glidepath.events import PictureReceived
from glidepath.messages import ImageBlock, TextBlock, UserMessage
from glidepath.testing import ScriptedModel, say

async def main():
    agent = Agent(model=ScriptedModel([say("nice")]), limits=Limits(max_iterations=2))
    prompt = UserMessage((TextBlock("look"), ImageBlock("image/png", b"x" * 9)))
    async with agent.stream(prompt) as stream:
        seen = [event async for event in stream if isinstance(event, PictureReceived)]
    assert seen and seen[0].bytes_seen == 9, seen

asyncio.run(main())
""",
    tests=("tests/values/test_round_trips.py", "tests/docs/test_tables.py"),
)

SETTING = Addition(
    files=1,
    insertions=(
        Insertion(
            config,
            "    thinking_tags: bool",
            '    quiet_turns: int = setting("int", "turns without a word", default=5, flag="--quiet-turns")\n',
        ),
    ),
    scripts=("make_keywords", "make_settings_table", "make_surface"),
    use="""
from glidepath import Agent, AgentBuilder, ConfigurationError
from glidepath.apps.cli.settings import BY_KEY
from glidepath.testing import ScriptedModel

assert Agent(model=ScriptedModel([]), quiet_turns="2k", unbounded=True).config.quiet_turns == 2000
assert AgentBuilder().model(ScriptedModel([])).quiet_turns(7).build().quiet_turns == 7
try:
    Agent(model=ScriptedModel([]), quiet_turns=0, unbounded=True)
except ConfigurationError as error:
    assert "quiet_turns" in str(error)
assert BY_KEY["quiet_turns"].flag == "--quiet-turns"
""",
    tests=("tests/agent/test_builder.py", "tests/test_bad_input.py", "tests/values/test_public_surface.py"),
)

HOST = Addition(
    files=1,
    insertions=(
        Insertion(
            hosts,
            '    ModelHost(\n        name="ollama"',
            """    ModelHost(
        name="sambanova",
        reaches="SambaNova Cloud",
        example="sambanova:Meta-Llama-3.3-70B-Instruct",
        key="SAMBANOVA_API_KEY",
        address="https://api.sambanova.ai/v1",
        sites=("api.sambanova.ai",),
    ),
""",
        ),
    ),
    scripts=("make_host_table",),
    use="""
import os
os.environ["SAMBANOVA_API_KEY"] = "k"
from glidepath import Agent, ConfigurationError, Limits

model = Agent(model="sambanova:Meta-Llama-3.3-70B-Instruct", limits=Limits(max_iterations=2)).config.model
assert model.name == "Meta-Llama-3.3-70B-Instruct", model.name
""",
    tests=("tests/docs/test_models_page.py", "tests/docs/test_costs_page.py"),
)

ADDITIONS = {"a limit kind": LIMIT, "an event": EVENT, "a setting": SETTING, "a host": HOST}
