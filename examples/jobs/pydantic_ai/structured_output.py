from pydantic import BaseModel, Field
from pydantic_ai import Agent


class Invoice(BaseModel):
    number: str
    total: float = Field(gt=0)


agent = Agent("openai:gpt-5-mini", output_type=Invoice, retries=2)
invoice = agent.run_sync("Read this invoice: number A1, 3 euros.").output
print(invoice.number, invoice.total)
