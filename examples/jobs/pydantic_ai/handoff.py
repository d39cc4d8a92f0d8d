from pydantic_ai import Agent

billing = Agent("openai:gpt-5-mini", instructions="You handle refunds.")


# by hand: there are no hand-offs; an output function says who takes over, and the caller keeps who that is
def transfer_to_billing(reason: str):
    """Hand the conversation over to billing."""
    return billing


triage = Agent("openai:gpt-5-mini", output_type=[str, transfer_to_billing])
active, history = triage, []
for said in ("I want a refund.", "When will I have it?"):
    result = active.run_sync(said, message_history=history)
    if isinstance(result.output, Agent):
        active = result.output
        result = active.run_sync(said, message_history=history)
    history = result.all_messages()
    print(result.output)
