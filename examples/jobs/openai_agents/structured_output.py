from agents import Agent, ModelBehaviorError, Runner
from pydantic import BaseModel, Field


class Invoice(BaseModel):
    number: str
    total: float = Field(gt=0)


agent = Agent(name="reader", model="gpt-5-mini", output_type=Invoice)
# by hand: the model is asked again
said = [{"role": "user", "content": "Read this invoice: number A1, 3 euros."}]
for _ in range(3):
    try:
        invoice = Runner.run_sync(agent, said).final_output
        break
    except ModelBehaviorError as error:
        said.append({"role": "user", "content": f"That was not valid: {error}"})
print(invoice.number, invoice.total)
