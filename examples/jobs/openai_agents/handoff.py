from agents import Agent, Runner

billing = Agent(name="billing", model="gpt-5-mini", instructions="You handle refunds.")
triage = Agent(name="triage", model="gpt-5-mini", handoffs=[billing])
first = Runner.run_sync(triage, "I want a refund.")
print(first.final_output)
said = [*first.to_input_list(), {"role": "user", "content": "When will I have it?"}]
print(Runner.run_sync(first.last_agent, said).final_output)
