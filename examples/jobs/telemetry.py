from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor

from glidepath import Agent, Limits, tool
from glidepath.otel import OpenTelemetry

provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(ConsoleSpanExporter(formatter=lambda span: f"{span.name}\n")))


@tool
def price(item: str) -> str:
    """What something costs."""
    return f"{item}: 3 euros"


agent = Agent("openai:gpt-5-mini", tools=[price], plugins=[OpenTelemetry(provider)], limits=Limits(max_iterations=3))
print(agent.run_sync("What is tea?").text)
