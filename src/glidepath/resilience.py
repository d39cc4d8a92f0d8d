"""What is known about the health of a model or tool: its breaker, and how often and when calls may be tried again."""

from glidepath.run.resilience import model_breaker

__all__ = ["model_breaker"]
