import asyncio

from glidepath import Agent, Budget, Limits
from glidepath.teams import ExpertTeamCoordinator, Team

limits = Limits(max_iterations=5)
planner = Agent("openai:gpt-5-mini", limits=limits)
worker = Agent("openai:gpt-5-mini", agent_name="worker", limits=limits)
reviewer = Agent("openai:gpt-5-mini", limits=limits)
team = Team([worker], coordinator=ExpertTeamCoordinator(planner=planner, evaluator=reviewer))
result = asyncio.run(team.run("Tell me how bees talk.", parent=Budget(Limits(max_tokens=100_000))))
print(result.final_output)
