"""What the tests of code mode share: an agent whose model writes programs, and what really happened."""

from glidepath import Agent, Limits, tool
from glidepath.code import CodeMode
from glidepath.testing import EventRecorder, ScriptedModel, call, say, transcript_errors

LIMITS = Limits(max_iterations=12)


class Desk:
    """An agent with a harmless, a dangerous and a failing tool, and `run_code`; one program a turn."""

    def __init__(self, *programs, limits=LIMITS, mode=None, tools=(), plugins=(), turns=None, **config):
        self.done = []
        self.recorder = EventRecorder()
        self.model = ScriptedModel(turns or [*[call("run_code", code=one) for one in programs], say("done")])

        @tool(read_only=True)
        async def look(n: int, *, deep: bool = False) -> dict[str, int]:
            """Look something up."""
            self.done.append(("look", n))
            return {"n": n, "square": n * n, "deep": int(deep)}

        @tool(requires_approval=True)
        async def send(to: str) -> str:
            """Send something."""
            self.done.append(("send", to))
            return f"sent to {to}"

        @tool
        async def fail(n: int = 0) -> str:
            """Fail."""
            self.done.append(("fail", n))
            raise ValueError(f"no such thing as {n}")

        self.agent = Agent(
            model=self.model,
            tools=[look, send, fail, mode or CodeMode(seconds=5), *tools],
            limits=limits,
            plugins=[*plugins, self.recorder.as_plugin()],
            **config,
        )

    def checked(self, result):
        """Every event is legal, and every call has its one result in order, but for those that are pending."""
        self.recorder.assert_legal()
        assert transcript_errors(result.messages, result.pending) == []
        return result

    async def run(self, prompt="go", **keywords):
        return self.checked(await self.agent.run(prompt, **keywords))

    async def resume(self, target, **keywords):
        return self.checked(await self.agent.resume(target, **keywords))

    def events(self, *kinds):
        return [event for event in self.recorder.events if type(event).__name__ in kinds]


def outputs(result):
    """What came of each program: kind and text."""
    return [(m.kind, m.text) for m in result.messages if m.role == "tool_result"]
