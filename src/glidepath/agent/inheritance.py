"""What the configuration of a child takes over from its parent's: one row for every field."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType

__all__ = ["INHERITANCE", "Passed"]


class Passed(str, Enum):
    """Whether a child's configuration begins with its parent's value of a field."""

    YES = "yes"
    NO = "no"
    AS_EACH_SAYS = "as each says"
    IN_PART = "in part"


INHERITANCE: Mapping[str, Passed] = MappingProxyType(
    {
        "model": Passed.YES,
        "tools": Passed.YES,
        "tool_sources": Passed.YES,
        "system_prompt": Passed.NO,  # a child has another job
        "limits": Passed.IN_PART,  # how it lands and delegates; what it may use is its own, within the parent's
        "guardrails": Passed.YES,
        "texts": Passed.YES,
        "constraints": Passed.YES,
        "replace_defaults": Passed.YES,
        "plugins": Passed.AS_EACH_SAYS,
        "store": Passed.YES,
        "event_sink": Passed.NO,  # or it would see the events of two runs as if they were one
        "default_execution_mode": Passed.YES,
        "max_tool_calls_per_turn": Passed.YES,
        "max_parallel_tools": Passed.YES,
        "max_image_bytes": Passed.YES,
        "max_image_bytes_per_request": Passed.YES,
        "max_file_bytes": Passed.YES,
        "tool_timeout": Passed.YES,
        "temperature": Passed.YES,
        "max_output_tokens": Passed.YES,
        "reasoning": Passed.YES,
        "tool_choice": Passed.YES,
        "strict_tools": Passed.YES,
        "stop_sequences": Passed.YES,
        "seed": Passed.YES,
        "logprobs": Passed.YES,
        "extras": Passed.YES,
        "max_output_tokens_recovery": Passed.YES,
        "empty_outcome_retry_budget": Passed.NO,  # a child decides by itself when to give up
        "plain_text_terminal_fallback_tool": Passed.YES,
        "plain_text_terminal_fallback_eager": Passed.YES,
        "plain_text_terminal_fallback_eager_nudge": Passed.YES,
        "graceful_turn_limit_message_provider": Passed.YES,
        "graceful_turn_limit_grace_provider": Passed.YES,
        "landing": Passed.YES,
        "conversation_id": Passed.NO,  # a child is a conversation of its own
        "model_id": Passed.YES,
        "token_estimator": Passed.YES,
        "protocol_policy": Passed.YES,
        "context_window": Passed.YES,
        "context_strategy": Passed.YES,
        "prices": Passed.YES,
        "unpriced": Passed.YES,
        "unbounded": Passed.YES,
        "min_output_tokens": Passed.YES,
        "max_retries": Passed.YES,
        "fallback_models": Passed.YES,
        "durability": Passed.YES,
        "output_type": Passed.YES,
        "deps_type": Passed.YES,
        "deps_factory": Passed.YES,
        "agent_name": Passed.YES,
        "connect_timeout": Passed.YES,
        "first_chunk_timeout": Passed.YES,
        "stall_timeout": Passed.YES,
        "call_timeout": Passed.YES,
        "hook_timeout": Passed.YES,
        "constraint_timeout": Passed.YES,
        "kill_switch_grace": Passed.YES,
        "thinking_tags": Passed.YES,
    }
)
"""Every field of `LoopConfig`, in its order. A test compares it with the fields."""
