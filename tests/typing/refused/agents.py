"""What type checkers must refuse: every line that ends in `# wrong` has an error, and no other line has one."""

from glidepath import Agent, Limits, tool
from glidepath.models import WebSearch
from glidepath.testing import ScriptedModel


class Invoice:
    total: int = 0


model = ScriptedModel(["hello"])
LIMITS = Limits(max_iterations=3)

Agent(model=model, tolls=[], limits=LIMITS)  # wrong
Agent(model=model, limits="nonsense")  # wrong
Agent(tools=[], limits=LIMITS)  # wrong
Agent(model=model, temperature="hot", limits=LIMITS)  # wrong
Agent(model=model, limits=LIMITS).replace(limit=LIMITS)  # wrong
Agent(model=model, limits=LIMITS).run_sync("Hi.", sesion="s")  # wrong
print(Agent(model=model, limits=LIMITS).run_sync("Hi.").output.total)  # wrong
print(Agent(model=model, limits=LIMITS, output_type=Invoice).run_sync("Hi.").unwrap().totl)  # wrong
Limits(max_tokens=[50])  # wrong
Limits(max_turns=3)  # wrong
WebSearch(max_uses="5")  # wrong
WebSearch(5)  # wrong
Agent(model=model, tools=[5], limits=LIMITS)  # wrong
Agent(model=model, reasoning_tokens=[1], limits=LIMITS)  # wrong
tool(background="yes")  # wrong
Agent(model=model, limits=LIMITS, output_type=Invoice, output_retries=[1])  # wrong
Agent(model=model, limits=LIMITS, output_type=Invoice, output_validators=["check"])  # wrong
print(Agent(model=model, limits=LIMITS, output_type=Invoice | str).run_sync("Hi.").unwrap().total)  # wrong
