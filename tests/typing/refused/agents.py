"""What type checkers must refuse: every line that ends in `# wrong` has an error, and no other line has one."""

from glidepath import Agent, Limits
from glidepath.testing import ScriptedModel

model = ScriptedModel(["hello"])
LIMITS = Limits(max_iterations=3)

Agent(model=model, tolls=[], limits=LIMITS)  # wrong
Agent(model=model, limits="nonsense")  # wrong
Agent(tools=[], limits=LIMITS)  # wrong
Agent(model=model, temperature="hot", limits=LIMITS)  # wrong
Agent(model=model, limits=LIMITS).replace(limit=LIMITS)  # wrong
Agent(model=model, limits=LIMITS).run_sync("Hi.", sesion="s")  # wrong
print(Agent(model=model, limits=LIMITS).run_sync("Hi.").output.total)  # wrong
