from glidepath import Agent, Limits, Session

limits = Limits(max_iterations=4)
billing = Agent("openai:gpt-5-mini", agent_name="billing", system_prompt="You handle refunds.", limits=limits)
triage = Agent("openai:gpt-5-mini", agent_name="triage", handoffs=[billing], limits=limits)
session = Session()
print(triage.run_sync("I want a refund.", session=session).text)
print(triage.run_sync("When will I have it?", session=session).text)
