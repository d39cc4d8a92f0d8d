"""What `glidepath` exports is fixed by SPEC 0: nothing less, and nothing by accident."""

import inspect

import pytest

import glidepath
from glidepath import INHERIT, Agent, LoopConfig, models, testing
from glidepath.guards import GracefulTurnLimit
from glidepath.values import errors, events

LATER: set[str] = set()  # names that come with their own issues
SURFACE = [
    "Agent",
    "AgentBuilder",
    "LoopConfig",
    "Limits",
    "Budget",
    "GuardrailsConfig",
    "MaxTokensRecovery",
    "TokenScaling",
    "ExecutionMode",
    "tool",
    "Tool",
    "ToolContext",
    "ToolResult",
    "Rules",
    "RunResult",
    "AgentState",
    "LoopOutcome",
    "StopCause",
    "Usage",
    "ResourceConstraint",
    "ResourceContext",
    "ResourceValidation",
    "ResourceAction",
    "Plugin",
    "PluginNames",
    "ProtocolPolicy",
    "Session",
    "CancelToken",
    "approve",
    "deny",
    "answer",
    "GlidepathError",
    "ConfigurationError",
    "BuilderError",
    "ModelError",
    "ToolError",
    "INHERIT",
    "Texts",
    "Skill",
    "AgentFile",
    "read_agents_md",
]
"""Settings that came after the specification of the first version."""
FIELDS = [
    "model",
    "tools",
    "system_prompt",
    "limits",
    "guardrails",
    "constraints",
    "replace_defaults",
    "plugins",
    "store",
    "event_sink",
    "default_execution_mode",
    "max_tool_calls_per_turn",
    "max_parallel_tools",
    "tool_timeout",
    "temperature",
    "max_output_tokens",
    "reasoning",
    "tool_choice",
    "extras",
    "max_output_tokens_recovery",
    "empty_outcome_retry_budget",
    "plain_text_terminal_fallback_tool",
    "plain_text_terminal_fallback_eager",
    "plain_text_terminal_fallback_eager_nudge",
    "graceful_turn_limit_message_provider",
    "graceful_turn_limit_grace_provider",
    "landing",
    "conversation_id",
    "model_id",
    "token_estimator",
    "protocol_policy",
    "context_window",
    "context_strategy",
    "prices",
    "unpriced",
    "unbounded",
    "min_output_tokens",
    "max_retries",
    "fallback_models",
    "durability",
    "output_type",
    "agent_name",
    "connect_timeout",
    "first_chunk_timeout",
    "stall_timeout",
    "call_timeout",
    "hook_timeout",
    "constraint_timeout",
    "thinking_tags",
]


def test_glidepath_exports_what_the_specification_names():
    assert set(glidepath.__all__) == set(SURFACE) - LATER
    for name in glidepath.__all__:
        assert getattr(glidepath, name) is not None


def test_everything_exported_is_documented():
    for name in glidepath.__all__:
        assert inspect.getdoc(getattr(glidepath, name)), name


def test_a_configuration_has_the_fields_of_the_specification_in_their_order():
    # Others may be among them: the dumps in api/ show what was added.
    assert [name for name in LoopConfig.__struct_fields__ if name in FIELDS] == FIELDS


def test_defaults_are_those_of_the_specification():
    config = LoopConfig(model=testing.ScriptedModel([]))
    defaults = {
        "max_parallel_tools": 16,
        "tool_choice": "auto",
        "landing": "withdraw",
        "context_strategy": "compact",
        "min_output_tokens": 256,
        "max_retries": 3,
        "durability": "sync",
        "connect_timeout": 10,
        "first_chunk_timeout": 120,
        "stall_timeout": 60,
        "hook_timeout": 5,
        "constraint_timeout": 1,
        "kill_switch_grace": 5,
    }
    assert {name: getattr(config, name) for name in defaults} == defaults
    limits = config.limits
    assert (limits.max_depth, limits.max_descendants, limits.landing_tokens, limits.landing_seconds) == (
        3,
        32,
        1024,
        20,
    )


@pytest.mark.parametrize("method", ["run", "run_sync", "stream", "as_tool"])
def test_an_agent_has_the_methods_of_the_specification(method):
    assert callable(getattr(Agent, method))


def test_run_and_stream_take_the_same_keywords():
    where = ["session", "parent"]
    every = ["cancel", "deps", "limits", "system_prompt", "model", "extras", "tool_choice", "metadata", "user"]
    again = ["decisions", "accept_repair"]
    taken = {name: [*inspect.signature(getattr(Agent, name)).parameters] for name in ("run", "stream", "resume")}
    assert taken["run"] == ["self", "prompt", *where, *every]
    assert taken["stream"] == ["self", "prompt", *where, *every, *again, "resume"]
    assert taken["resume"] == ["self", "target", *again, *every, "parent"]
    for name in ("run", "resume"):
        assert [*inspect.signature(getattr(Agent, f"{name}_sync")).parameters] == taken[name]


@pytest.mark.parametrize("method", ["run", "stream", "resume", "run_sync", "stream_sync", "resume_sync"])
def test_an_option_that_is_left_out_has_the_default_of_its_signature(method):
    given = inspect.signature(getattr(Agent, method)).parameters.values()
    defaults = {one.name: one.default for one in given if one.kind is one.KEYWORD_ONLY}
    told = {"parent": None if method.startswith("resume") else INHERIT, "accept_repair": False}
    assert defaults == {name: told.get(name) for name in defaults}


@pytest.mark.parametrize(
    ("module", "names"),
    [
        (models, ["Model", "ModelRequest", "TextDelta", "ThinkingDelta", "ToolCallDelta", "StreamEnd"]),
        (
            errors,
            [
                "TransientError",
                "RateLimitedError",
                "ContextOverflowError",
                "RejectedError",
                "RefusedError",
                "InconsistentHistoryError",
                "EmptyResponseError",
                "FatalToolError",
                "StoreError",
                "RunNotCompleted",
            ],
        ),
        (events, ["StreamChunk", "RunStarted", "RunEnded"]),
        (testing, ["ScriptedModel", "say", "call", "calls", "fail", "hang", "truncated", "VirtualClock"]),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_the_other_modules_export_what_the_specification_names(module, names):
    for name in names:
        assert name in module.__all__
        assert getattr(module, name) is not None


def test_a_graceful_turn_limit_stands_alone():
    assert GracefulTurnLimit(20, 5).soft_limit() == 15


def test_a_run_result_has_the_fields_of_the_specification():
    named = [
        "run_id",
        "session_id",
        "state",
        "outcome",
        "cause",
        "stop_reason",
        "text",
        "output",
        "partial",
        "messages",
        "new_messages",
        "usage",
        "cost",
        "breakdown",
        "iterations",
        "tool_calls",
        "landing_calls",
        "elapsed",
        "validations",
        "children",
        "pending",
        "abandoned",
        "unknown_effects",
        "undelivered",
    ]
    assert set(named) <= set(glidepath.RunResult.__struct_fields__)
