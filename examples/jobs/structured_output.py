from pydantic import BaseModel, Field

from glidepath import Agent, Limits


class Invoice(BaseModel):
    number: str
    total: float = Field(gt=0)


agent = Agent("openai:gpt-5-mini", output_type=Invoice, output_retries=2, limits=Limits(max_iterations=5))
invoice = agent.run_sync("Read this invoice: number A1, 3 euros.").unwrap()
print(invoice.number, invoice.total)
