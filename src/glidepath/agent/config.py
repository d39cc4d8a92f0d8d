"""The configuration of an agent: every setting, its default and its checks."""

from collections.abc import Callable, Mapping
from enum import Enum
from typing import TYPE_CHECKING, Any

from glidepath.agent.config_checks import add_agents_from_files, check, normalize
from glidepath.agent.limits import OTHER_LIMIT_NAMES, Limits
from glidepath.guards import GuardrailsConfig, MaxTokensRecovery
from glidepath.plugins import HookTable, PluginNames
from glidepath.spi import (
    REASONING,
    CallGuard,
    ContextStrategy,
    Model,
    OutputContext,
    Plugin,
    PromptContext,
    ProtocolPolicy,
    ResourceConstraint,
    RunInfo,
    StopGuard,
    TokenEstimator,
)
from glidepath.tools import Tool, ToolSource
from glidepath.values import (
    LOWER,
    ConfigurationError,
    DeclaredSettings,
    Event,
    Passed,
    Texts,
    close_to,
    translate_read_errors,
)
from glidepath.values.setting import setting

if TYPE_CHECKING:
    from glidepath.agent.builder import AgentBuilder


class ExecutionMode(str, Enum):
    """Whether the calls of one reply run in parallel.

    AUTO: together when every one of them is `read_only`, `parallel_safe` or an agent as a tool, else one after the
    other in the order of the reply. PARALLEL: always together. SEQUENTIAL: never. An `exclusive` tool always runs
    alone.
    """

    PARALLEL = "parallel"
    SEQUENTIAL = "sequential"
    AUTO = "auto"


class LoopConfig(DeclaredSettings, frozen=True, kw_only=True):
    """An agent's configuration: frozen, checked at construction, shared by all its runs.

    Raises `ConfigurationError` naming the setting. Lists and mappings are copied: changing yours later changes nothing.
    """

    # One declaration, one setting: everything else about it is derived from that. Annotations are evaluated here, not
    # kept as text: reading them would mean compiling each of them whenever a program starts.
    model: Model | str = setting(
        "text",
        "which model, such as anthropic:claude-sonnet-4-5",
        flag="--model",
        metavar="NAME",
        see="[the README](../README.md#your-own-model)",
        checked=False,
        in_python="an object with name and stream(request), or its name such as anthropic:claude-sonnet-4-5",
    )
    tools: tuple[Tool, ...] = setting(
        "names",
        "tools the model may call: read, list, grep, write, edit, shell, or installed ones",
        default=(),
        flag="--tools",
        metavar="NAMES",
        cli_default=("read", "list", "grep"),
        found=("read", "list", "grep"),
        wider="Iterable[Tool | ToolSource | HostedTool | Callable[..., Any] | str]",
        in_python="Tool objects, functions, sources such as McpServer, hosted tools, or names of installed tools",
    )
    tool_sources: tuple[ToolSource, ...] = setting(
        "names",
        "where MCP servers and other sources in tools end up; what they offer is known when a run starts",
        default=(),
        python_only="Python objects; MCP servers go in [mcp.servers.NAME]",
        wider="Iterable[ToolSource]",
    )
    hosted_tools: tuple[Any, ...] = setting(
        "table",
        "tools that run at the model's provider: web_search, web_fetch, code_execution, each with its options",
        default=(),
        checked=False,
        wider="Iterable[HostedTool] | Mapping[str, Any]",
        in_python="tools that run at the model's provider, such as WebSearch(max_uses=5); in tools they are found, too",
        see="[hosted tools](hosted-tools.md)",
    )
    handoffs: tuple[Any, ...] = setting(
        "names",
        "agents that the conversation may be handed over to",
        default=(),
        python_only="Python objects",
        inherited=Passed.NO,
        wider="Iterable[Agent[Any, Any] | str]",
        in_python="agents, or names of agents that take part, to which the conversation may be handed over",
        see="[hand-offs](handoffs.md)",
    )
    skills: tuple[Any, ...] = setting(
        "names",
        "skills that the model may read: folders with a SKILL.md, and folders of such folders",
        default=(),
        python_only="the section [skills]",
        inherited=Passed.NO,
        see="[skills](skills.md)",
        in_python="Skill objects, and folders of skills",
        wider="Iterable[Skill | str | PathLike[str]]",
    )
    agents: tuple[Any, ...] = setting(
        "names",
        "agents from files, each a tool that hands a task to a child",
        default=(),
        python_only="the table [agents]",
        inherited=Passed.NO,
        see="[agents from files](skills.md#agents-from-files)",
        in_python="AgentFile objects, and paths of agent files",
        wider="Iterable[AgentFile | str | PathLike[str]]",
    )
    system_prompt: str | Callable[[PromptContext], Any] = setting(
        "text",
        "what the model is told first; {folder} and {date} are filled in where it is our own",
        default="",
        cli_default=(
            "You help the person at this terminal. You work in the folder {folder}. Today is {date}. "
            "Look things up with your tools instead of guessing, and keep your answers short."
        ),
        flag="--system-prompt",
        metavar="TEXT",
        inherited=Passed.NO,
        checked=False,
        wider="str | Callable[[PromptContext[Any]], str | Awaitable[str]]",
        in_python="what the model is told first, or a function of the run's context that writes it",
        see="[prompts](prompts.md)",
    )
    limits: Limits = setting(
        "part",
        "what one run may use, its descendants included",
        default=Limits(),
        python_only="the section [limits]",
        inherited=Passed.IN_PART,
        see="[Limits](#limits)",
    )
    guardrails: GuardrailsConfig = setting(
        "part",
        "safety nets against loops, truncation and silence",
        default=GuardrailsConfig(),
        python_only="the section [guardrails]",
        see="[GuardrailsConfig](#guardrailsconfig)",
    )
    texts: Texts = setting(
        "table",
        "what the runtime tells the model, such as wind_down, landing, repetition: {name: text}",
        default=Texts(),
        see="[the texts](the-landing.md#the-texts)",
        checked=False,
        in_python="the exact words the runtime tells the model",
    )
    constraints: tuple[ResourceConstraint, ...] = setting(
        "names",
        "constraints by their entry-point name, asked after the built-in ones",
        default=(),
        wider="Iterable[ResourceConstraint | Callable[[ResourceContext], Any] | str]",
        adds_up=True,
        in_python="your own constraints, functions, or names of installed ones, asked after the built-in ones",
    )
    guards: tuple[CallGuard | StopGuard, ...] = setting(
        "names",
        "call and stop guards by their entry-point name, asked after the built-in ones",
        default=(),
        wider="Iterable[CallGuard | StopGuard | str]",
        adds_up=True,
        in_python="your own call and stop guards, or names of installed ones, asked after the built-in ones",
        see="[your own guards](stuck-loops.md#your-own-guards)",
    )
    replace_defaults: bool = setting("bool", "drop the built-in constraints; needs constraints", default=False)
    plugins: tuple[Plugin, ...] = setting(
        "names",
        "plugins by their entry-point name, in calling order",
        default=(),
        inherited=Passed.AS_EACH_SAYS,
        wider="Iterable[Plugin | str]",
        adds_up=True,
        in_python="plugins, or names of installed ones, in calling order",
    )
    approvals: Any = setting(
        "object?",
        "rules about which calls run without asking, which ask a person, and which never run",
        default=None,
        python_only="the section [approvals]",
        see="[approval rules](approval-rules.md)",
        wider="Rules | None",
    )
    store: Any = setting(
        "text?",
        (
            "where sessions are kept: the path of a file, a postgresql:// address, default (in your data "
            "folder), or none"
        ),
        default=None,
        flag="--store",
        metavar="PATH",
        see="[sessions](sessions.md)",
        checked=False,
        in_python="where sessions are kept: a store, or the path of a SQLite file such as `'sessions.db'`",
        wider="SessionStore | str | PathLike[str] | None",
    )
    event_sink: Callable[[Event], Any] | None = setting(
        "callable?",
        "a callable that sees every event first",
        default=None,
        python_only="a Python callable",
        inherited=Passed.NO,
    )
    default_execution_mode: ExecutionMode = setting(
        "choice",
        "whether the calls of one reply run in parallel",
        default=ExecutionMode.AUTO,
        choices=("auto", "parallel", "sequential"),
        found=("auto", "sequential"),
        see="[several calls at once](writing-a-tool.md#several-calls-at-once)",
        checked=False,
    )
    max_tool_calls_per_turn: int | None = setting(
        "int?", "tool calls of one reply that are run", default=None, found=LOWER
    )
    max_parallel_tools: int = setting("int", "tool calls that run at the same time", default=16, found=LOWER)
    max_image_bytes: int = setting(
        "int", "maximum bytes of one picture", default=5_000_000, found=LOWER, see="[pictures](context.md#pictures)"
    )
    max_image_bytes_per_request: int = setting(
        "int",
        "maximum bytes of all pictures of a request",
        default=20_000_000,
        found=LOWER,
        in_python="maximum bytes of all pictures and files of a request; older ones are left out",
    )
    max_file_bytes: int = setting(
        "int",
        "maximum bytes of one document, recording or video",
        default=10_000_000,
        found=LOWER,
        see="[files](choosing-a-model.md#files)",
    )
    tool_timeout: float | None = setting(
        "seconds?",
        "time for one tool call",
        default=None,
        flag="--tool-timeout",
        metavar="TIME",
        found=LOWER,
        in_python="seconds for one tool call",
    )
    temperature: float | None = setting(
        "number?", "passed to the model", default=None, flag="--temperature", metavar="X"
    )
    max_output_tokens: int | None = setting(
        "int?", "output cap of one model call", default=None, flag="--max-output-tokens", metavar="N"
    )
    reasoning: str | None = setting(
        "choice?",
        "how hard the model should think; passed to the model",
        default=None,
        choices=REASONING,
        flag="--reasoning",
        metavar="LEVEL",
    )
    reasoning_tokens: int | None = setting(
        "int?",
        "how many tokens the model may think, where it takes a number",
        default=None,
        see="[reasoning](choosing-a-model.md#reasoning-the-thinking-budget)",
    )
    task_budget: bool = setting(
        "bool",
        "tell the model how many tokens its run has left, where its provider takes that",
        default=True,
        see="[the model's own countdown](budgets.md#the-models-own-countdown)",
    )
    tool_choice: str = setting("text", "auto, required, none, or the name of a tool", default="auto")
    strict_tools: bool = setting(
        "bool",
        "hold the model to the tools' schemas, where the provider can",
        default=False,
        see="[strict tools](choosing-a-model.md#strict-tools)",
    )
    stop_sequences: tuple[str, ...] = setting(
        "names", "texts at which a reply stops; passed to the model", default=(), wider="Iterable[str]"
    )
    seed: int | None = setting("count?", "passed to the model", default=None, most=2**63 - 1)
    logprobs: int | None = setting(
        "count?",
        "alternatives to report with each token of a reply, with their probabilities",
        default=None,
        see="[provider settings](choosing-a-model.md#provider-specific-settings)",
        most=20,
    )
    extras: Mapping[str, Any] | None = setting("table", "passed to the model's provider unchanged", default=None)
    max_output_tokens_recovery: MaxTokensRecovery | None = setting(
        "recovery",
        "ask again for truncated replies with a larger cap: max_attempts, scaling, ceiling",
        default=None,
        needs="max_output_tokens",
        in_python="a MaxTokensRecovery: ask again for truncated replies with a larger cap",
    )
    empty_outcome_retry_budget: int | None = setting(
        "count?", "how many stops without a tool call may be answered in a row", default=None, inherited=Passed.NO
    )
    plain_text_terminal_fallback_tool: str | None = setting(
        "text?",
        "the tool that a plain-text stop counts as calling",
        default=None,
        see="[the policy](protocol-policy.md#plain-text-where-a-delivery-was-expected)",
    )
    plain_text_terminal_fallback_eager: bool = setting(
        "bool", "count it as a call of that tool at once", default=False, needs="plain_text_terminal_fallback_tool"
    )
    plain_text_terminal_fallback_eager_nudge: bool = setting(
        "bool", "nudge first, at most twice", default=False, needs="plain_text_terminal_fallback_eager"
    )
    graceful_turn_limit_message_provider: Callable[[], str] | None = setting(
        "callable?",
        "a function that returns the text of the wind-down notice",
        default=None,
        python_only="a Python callable",
    )
    graceful_turn_limit_grace_provider: Callable[[], int] | None = setting(
        "callable?",
        "a function that returns the grace, called at every turn",
        default=None,
        python_only="a Python callable",
        needs="max_iterations",
    )
    landing: str = setting(
        "choice",
        "what happens at a limit: withdraw the tools, steer, force the answer, or off",
        default="withdraw",
        flag="--landing",
        choices=("withdraw", "steer", "force", "off"),
        see="[the landing](the-landing.md)",
    )
    conversation_id: str | None = setting("text?", "given to hooks and events", default=None, inherited=Passed.NO)
    model_id: str | None = setting("text?", "the model's name as hooks see it", default=None)
    token_estimator: TokenEstimator | None = setting(
        "object?",
        "an object with estimate(text) -> int; None: by characters, over-estimating",
        default=None,
        python_only="a Python object",
    )
    protocol_policy: ProtocolPolicy | None = setting(
        "object?",
        "a ProtocolPolicy: terminal tool names, alias repair, words for hidden tools",
        default=None,
        python_only="a Python object",
    )
    context_window: int | None = setting(
        "int?",
        "tokens the model can read; 0 is off",
        default=None,
        flag="--context-window",
        seed="context_window",
        metavar="N",
        zero_is_off=True,
    )
    context_strategy: str | ContextStrategy = setting(
        "text",
        "how a long transcript is made to fit: compact, clear, sliding_window, summarize or none",
        default="compact",
        flag="--context-strategy",
        seed="context_strategy",
        metavar="NAME",
        see="[context](context.md)",
        checked=False,
        in_python=(
            "how a long transcript is made to fit: compact, clear, sliding_window, summarize, none, a ContextStrategy"
        ),
    )
    prices: Mapping[str, Any] | None = setting(
        "prices",
        "dollars per million tokens: {model name: [input, output]}",
        default=None,
        in_python="{model name: (input, output)} in dollars per million tokens",
    )
    unpriced: str | None = setting(
        "text?", "estimate:MODEL, the model whose price to use when none is known", default=None
    )
    unbounded: bool = setting("bool", "allow a run without any limit", default=False)
    min_output_tokens: int = setting("int", "an output cap is never lowered below this to make a call fit", default=256)
    max_retries: int = setting(
        "count",
        "attempts after the first when a model call fails",
        default=3,
        flag="--max-retries",
        seed="max_retries",
        metavar="N",
        found=LOWER,
    )
    fallback_models: tuple[Any, ...] = setting(
        "names",
        "models to fall back to, in order",
        default=(),
        flag="--fallback-models",
        metavar="NAMES",
        wider="Iterable[Model | str]",
        see="[fallback models](retries-and-timeouts.md#fallback-models)",
    )
    durability: str = setting(
        "choice", "when the store writes to disk", default="sync", choices=("sync", "full"), needs="store"
    )
    output_type: Any = setting(
        "object?",
        "the type of the final answer",
        default=None,
        python_only="a Python type",
        see="[structured output](structured-output.md)",
        in_python="the type of the final answer",
        wider="object",
    )
    output_retries: int = setting(
        "count",
        "how often in a row the model may be asked for another answer than one that does not do",
        default=1,
        found=LOWER,
        see="[structured output](structured-output.md#asking-again)",
    )
    output_validators: tuple[Callable[[OutputContext], Any], ...] = setting(
        "names",
        "functions that see a typed answer: they change it, or raise AskAgain",
        default=(),
        python_only="Python callables",
        wider="Iterable[Callable[[OutputContext[Any]], Any]]",
        needs="output_type",
        adds_up=True,
        see="[validators](structured-output.md#validators)",
        checked=False,
    )
    deps_type: Any = setting(
        "object?",
        "the type of what is passed as run(deps=...)",
        default=None,
        python_only="a Python type",
        wider="object",
    )
    deps_factory: Callable[[RunInfo], Any] | None = setting(
        "callable?",
        "makes the deps of a run that got none, for example in a worker: a plain function of RunInfo",
        default=None,
        python_only="a Python callable",
    )
    agent_name: str = setting("text", "the agent's name in events and breakdowns", default="agent")
    start_timeout: float | None = setting(
        "seconds?",
        "time to wait for a shared budget before the run starts",
        default=None,
        see="[a shared budget](budgets.md#a-shared-budget)",
        in_python="seconds to wait for a shared budget before the run starts; None: as long as it takes",
    )
    connect_timeout: float | None = setting(
        "seconds?",
        "time to connect to the provider",
        default=10,
        see="[timeouts](retries-and-timeouts.md#timeouts)",
        in_python="seconds to connect to the provider",
    )
    first_chunk_timeout: float | None = setting(
        "seconds?", "time to the first piece of a reply", default=120, in_python="seconds to the first piece of a reply"
    )
    stall_timeout: float | None = setting(
        "seconds?", "time between two pieces of a reply", default=60, in_python="seconds between two pieces of a reply"
    )
    call_timeout: float | None = setting(
        "seconds?",
        "time for one attempt at a model call",
        default=None,
        in_python="seconds for one attempt at a model call",
    )
    hook_timeout: float = setting(
        "seconds",
        "time for one answer of an async hook",
        default=5,
        in_python="seconds for one answer of an async hook",
    )
    constraint_timeout: float = setting(
        "seconds", "time for one answer of a constraint", default=1, in_python="seconds for one answer of a constraint"
    )
    kill_switch_grace: float = setting(
        "seconds",
        "how many seconds a kill switch may be unreadable before it counts as thrown",
        default=5,
        python_only="a kill switch is a Python object",
    )
    debug: bool = setting(
        "bool",
        "log the text and the traceback of errors in your tools, hooks, constraints, observers and models",
        default=False,
        flag="--debug",
        see="[your own bugs](how-a-run-ends.md#your-own-bugs)",
    )
    thinking_tags: bool = setting("bool", "hide <think> and its synonyms from the visible text", default=False)

    def __post_init__(self) -> None:
        with translate_read_errors():
            normalize(self)
            check(self)
            if self.agents:
                add_agents_from_files(self)
                check(self)

    @classmethod
    def no_such_setting(cls, name: str) -> ConfigurationError:
        """The error for a keyword that is not a setting, with a suggestion."""
        return ConfigurationError(_explain_unknown_setting(name))

    def plugin_names(self) -> PluginNames:
        """The plugins behind each hook, in calling order."""
        return HookTable(self.plugins).names()

    def child_builder(self) -> "AgentBuilder":
        """A builder for a child's configuration: everything a child inherits, as each setting declares."""
        from glidepath.agent.builder import child_builder

        return child_builder(self)


FIELDS: tuple[str, ...] = LoopConfig.__struct_fields__


def make_config(**fields: Any) -> LoopConfig:
    """A `LoopConfig` from keyword arguments; raises `ConfigurationError` naming the field, also for a missing model."""
    if "model" not in fields:
        unknown = [name for name in fields if name not in FIELDS]
        raise ConfigurationError(
            _explain_unknown_setting(unknown[0]) if unknown else "model is required: pass model=..."
        )
    return LoopConfig(**fields)


def _explain_unknown_setting(name: str) -> str:
    limits, guardrails = Limits.__struct_fields__, GuardrailsConfig.__struct_fields__
    meant = _OTHER_NAMES.get(name, name)
    close = meant if meant in (*FIELDS, *limits, *guardrails) else close_to(name, FIELDS)
    hint = f"; did you mean {close!r}?" if close else ""
    if name in _NOT_SETTINGS:
        hint = f"; {_NOT_SETTINGS[name]}"
    elif close in limits:
        hint = f"; it belongs to the limits: limits=Limits({close}=...)"
    elif close in guardrails:
        hint = f"; it belongs to the guardrails: guardrails=GuardrailsConfig({close}=...)"
    return f"there is no setting {name!r}{hint}"


_OTHER_NAMES = {  # what the same is called elsewhere
    "callbacks": "plugins",
    "checkpointer": "store",
    "hooks": "plugins",
    "instructions": "system_prompt",
    "llm": "model",
    "mcp_servers": "tools",
    "memory": "store",
    "middleware": "plugins",
    "name": "agent_name",
    "provider_extras": "extras",
    "response_format": "output_type",
    "response_model": "output_type",
    "result_type": "output_type",
    "role": "system_prompt",
    **OTHER_LIMIT_NAMES,
}
_FOR_A_RUN = "it belongs to a run: agent.run(prompt, {}=...)"
_FOR_THE_MODEL = "it belongs to the model: model=glidepath.models.OpenAIModel(name, {}=...)"
_NOT_SETTINGS = {  # what is passed elsewhere, and where
    **dict.fromkeys(("parent", "wallet"), _FOR_A_RUN.format("parent")),
    "api_key": _FOR_THE_MODEL.format("api_key"),
    "base_url": _FOR_THE_MODEL.format("base_url"),
    "budget": "an amount is limits=Limits(max_cost=...); a Budget belongs to a run: agent.run(prompt, parent=budget)",
    "cancel": _FOR_A_RUN.format("cancel"),
    "deps": _FOR_A_RUN.format("deps"),
    "history": _FOR_A_RUN.format("session"),
    "messages": _FOR_A_RUN.format("session"),
    "model_settings": "temperature, max_output_tokens and the rest are settings of their own",
    "session": _FOR_A_RUN.format("session"),
    "stream": "a model has a stream method: pass it as model=; to stream a run, use agent.stream(prompt)",
    "verbose": "plugins=[glidepath.observe.LogObserver()] logs every event",
}
