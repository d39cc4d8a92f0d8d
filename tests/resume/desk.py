"""What the tests of pausing and resuming share: an agent whose tools need a person, and its whole record."""

from glidepath import Agent, Limits, tool
from glidepath.testing import EventRecorder, ScriptedModel, call, calls, transcript_errors

LIMITS = Limits(max_iterations=9)


class Desk:
    """An agent with a dangerous, a harmless, a failing and a terminal tool; keeps what really happened."""

    def __init__(self, turns, *, limits=LIMITS, tools=(), plugins=(), **config):
        self.done = []
        self.recorder = EventRecorder()
        self.model = ScriptedModel(turns)

        @tool(requires_approval=True)
        async def send(to: str, n: int = 0) -> str:
            self.done.append(("send", to, n))
            return f"sent to {to}"

        @tool
        async def look(n: int = 0) -> str:
            self.done.append(("look", n))
            return f"saw {n}"

        @tool(requires_approval=True)
        async def fail() -> str:
            self.done.append(("fail",))
            raise ValueError("no such thing")

        @tool(terminal=True)
        async def finish(text: str) -> str:
            return text

        self.agent = Agent(
            model=self.model,
            tools=[send, look, fail, finish, *tools],
            limits=limits,
            plugins=[*plugins, self.recorder.as_plugin()],
            **config,
        )

    def checked(self, result):
        """Every event is legal, every call has its one result in order, but for those that are pending."""
        self.recorder.assert_legal()
        assert transcript_errors(result.messages, result.pending) == []
        return result

    async def run(self, prompt="go", **keywords):
        return self.checked(await self.agent.run(prompt, **keywords))

    async def resume(self, target, **keywords):
        return self.checked(await self.agent.resume(target, **keywords))


def results(result):
    """The tool results of a run: call name, kind, text."""
    return [(m.tool_name, m.kind, m.text) for m in result.messages if m.role == "tool_result"]


def ids(result):
    return [waiting.call.id for waiting in result.pending]


def mixed():
    """A batch in which two calls wait, one in the middle."""
    return calls(call("look", n=1), call("send", to="a"), call("look", n=2), call("send", to="b"), call("look", n=3))
