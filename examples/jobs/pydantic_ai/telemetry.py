from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor
from pydantic_ai import Agent, InstrumentationSettings

provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(ConsoleSpanExporter(formatter=lambda span: f"{span.name}\n")))
Agent.instrument_all(InstrumentationSettings(tracer_provider=provider))
agent = Agent("openai:gpt-5-mini")


@agent.tool_plain
def price(item: str) -> str:
    """What something costs."""
    return f"{item}: 3 euros"


print(agent.run_sync("What is tea?").output)
