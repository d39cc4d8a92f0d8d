"""What one run is given: its prompt, its session, and what it has beside its agent's settings.

All of it is checked before the first call; what can be written is kept over a resume.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from types import UnionType
from typing import Any, Union, get_args, get_origin

from glidepath import _wire
from glidepath._wire import Value, WireError, asdict, replace
from glidepath.agent.config import FIELDS, LoopConfig
from glidepath.agent.config_checks import TOOL_CHOICES
from glidepath.agent.limits import OTHER_LIMIT_NAMES, Limits, check_limits
from glidepath.agent.prompt_parts import join_parts
from glidepath.agent.route import join_plans
from glidepath.agent.run_options import Continued, EveryRun, NewRun
from glidepath.kernel import repair
from glidepath.run import Plan, Run
from glidepath.sessions import Session
from glidepath.spi import ResourceConstraint, RunInfo
from glidepath.tools import Tool, picture_bytes
from glidepath.values import (
    ConfigurationError,
    FileBlock,
    Message,
    PerRun,
    Snapshot,
    TextBlock,
    UserMessage,
    check_sendable,
    check_text,
    close_to,
    codec,
    describe_error,
    short_repr,
)

# What OpenAI takes, which is the strictest of those that have such fields.
MOST_PAIRS = 16
LONGEST_KEY = 64
LONGEST_VALUE = 512
LONGEST_USER = 64


class Given(Value, frozen=True, eq=False):
    """What one run was given: what the journal keeps of it, and objects that it never sees."""

    per_run: PerRun | None = None
    deps: Any = None
    model: Any = None
    """A model for this run, as an object."""
    prompt: Callable[[Any], Any] | None = None
    """What writes its system prompt, where that is a function."""


NOTHING = Given()


_ALONE = tuple([name for name in EveryRun.__annotations__ if name != "cancel"])


def check_run_options(tools: tuple[Tool, ...], options: Mapping[str, Any], *, more_tools: bool = False) -> Given:
    """What was passed to `run()` for this run alone; raises `ConfigurationError` naming the argument.

    `more_tools`: there are sources, whose tools are known only when the run starts.
    """
    said = {name: value for name in _ALONE if (value := options.get(name)) is not None}
    if not said:
        return NOTHING
    deps, model = said.pop("deps", None), said.pop("model", None)
    prompt = said.pop("system_prompt") if callable(said.get("system_prompt")) else None
    checks: dict[str, Callable[[Any], Any]] = {
        "extras": _check_extras,
        "tool_choice": partial(_tool_choice, tools=tools, more_tools=more_tools),
        "metadata": check_metadata,
        "user": check_user,
        "limits": _check_limits_option,
        "system_prompt": _system_prompt,
    }
    kept = {name: checks[name](value) for name, value in said.items()}
    if isinstance(model, str):
        kept["model"], model = model, None
    return Given(PerRun(**kept) if kept else None, deps, model, prompt)


def apply_run_options(config: LoopConfig, given: Given) -> LoopConfig:
    """The agent's configuration with the limits, the system prompt and the model of one run; itself without any."""
    kept, changes = given.per_run, {}
    if given.model is not None:
        changes["model"] = given.model
    if kept is not None:
        if kept.limits is not None:
            changes["limits"] = Limits(**kept.limits)
        if kept.system_prompt is not None:
            changes["system_prompt"] = kept.system_prompt
        if kept.model is not None and given.model is None:
            changes["model"] = kept.model
    if given.prompt is not None:
        changes["system_prompt"] = given.prompt
    return replace(config, **changes) if changes else config


def deps_for(plan: Plan, given: Given, session_id: str) -> Any:
    """The `deps` of a run: those it was given, or those its agent makes; raises `ConfigurationError` for wrong ones."""
    deps = given.deps
    if deps is None and plan.config.deps_factory is not None:
        deps = _make_deps(plan, given.per_run or PerRun(), session_id)
    for who, kind in plan.deps_needed:
        if not _has_type(deps, kind):
            name = getattr(kind, "__name__", None) or str(kind)
            got = "no deps were passed" if deps is None else f"deps is a {type(deps).__name__}"
            raise ConfigurationError(f"{who} needs deps of type {name}, and {got}; pass run(..., deps=...)")
    return deps


def make_run_constraints(plan: Plan) -> Plan:
    """The plan of one run: constraints that keep state about a run are made for it."""
    if all(type(one).for_run is ResourceConstraint.for_run for one in plan.custom):
        return plan
    try:
        made = {id(one): one.for_run() for one in plan.constraints}
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise ConfigurationError(f"for_run of a constraint failed: {describe_error(error)}") from error
    for one in made.values():
        if not isinstance(one, ResourceConstraint):
            raise ConfigurationError(f"for_run must return a ResourceConstraint, not {short_repr(one, 100)}")
    plans = [_replace_constraints(one, made) for one in ((plan,) if plan.route is None else plan.route.plans)]
    return plans[0] if plan.route is None else join_plans(plans)


def _replace_constraints(plan: Plan, made: Mapping[int, ResourceConstraint]) -> Plan:
    metered, asked = (tuple(made[id(one)] for one in part) for part in (plan.metered, plan.asked))
    constraints = (*metered, *asked)
    clocked = tuple(one for one in constraints if one.check_every is not None)
    return replace(plan, constraints=constraints, metered=metered, asked=asked, clocked=clocked)


def _make_deps(plan: Plan, kept: PerRun, session_id: str) -> Any:
    make: Any = plan.config.deps_factory
    run = RunInfo(
        agent_name=plan.config.agent_name,
        session_id=session_id,
        conversation_id=plan.config.conversation_id,
        user=kept.user,
        metadata=kept.metadata,
    )
    try:
        return make(run)
    except Exception as error:
        raise ConfigurationError(f"deps_factory failed for session {session_id!r}: {describe_error(error)}") from error


def _has_type(deps: object, kind: object) -> bool:
    """False when it cannot have that type; what cannot be checked at run time is left to type checkers."""
    if get_origin(kind) in (Union, UnionType):
        return any(_has_type(deps, one) for one in get_args(kind))
    base: Any = get_origin(kind) or kind
    try:
        return isinstance(deps, base)
    except TypeError:  # such as a protocol that is not for run time
        return deps is not None


async def write_system_prompt(plan: Plan, given: Given, session_id: str) -> tuple[str, Given]:
    """The text that the agent's function makes for this run, and what the run was given, with it and its deps.

    Raises `ConfigurationError` for a function that fails, says nothing in time or returns something else.
    """
    from glidepath.agent.prompt_writer import write_prompt

    deps = deps_for(plan, given, session_id)
    kept = given.per_run or PerRun()
    text = await write_prompt(plan.config, kept, deps, session_id)
    return text, Given(replace(kept, system_prompt=text), deps, given.model)


def _check_limits_option(limits: Limits) -> dict[str, Any]:
    check_limits(limits)
    said: dict[str, Any] = _wire.loads(_wire.encode(asdict(limits)))
    return {name: value for name, value in said.items() if getattr(limits, name) != getattr(_DEFAULTS, name)}


_DEFAULTS = Limits()


def _system_prompt(text: str) -> str:
    check_text("system_prompt", text)
    return str.__str__(text)


def merge_earlier_options(snapshot: Snapshot, given: Given, limits: Limits | None) -> tuple[Snapshot, Given]:
    """What a resumed run has: each value that was passed to `resume()`, and the others as they were."""
    kept = _merge_options(snapshot.per_run, given.per_run)
    if limits is not None and kept is not None and kept.limits is not None:
        kept = replace(kept, limits=_check_limits_option(limits))
    return replace(snapshot, per_run=kept), Given(kept, given.deps, given.model, given.prompt)


def _merge_options(before: PerRun | None, now: PerRun | None) -> PerRun | None:
    if before is None or now is None:
        return now or before
    given = {name: value for name in PerRun.__struct_fields__ if (value := getattr(now, name)) is not None}
    return replace(before, **given)


def inherit_options(parent: Run, plan: Plan, own: Given) -> Given:
    """What a child has: its parent's deps, user and metadata, with its own on top. The rest is the parent's alone.

    An agent that can make its own `deps` makes them when the parent's are of another type.
    """
    above, kept = parent.terms.per_run, own.per_run
    if above is not None and (above.user is not None or above.metadata is not None):
        kept = kept or PerRun()
        metadata = above.metadata if kept.metadata is None else {**(above.metadata or {}), **kept.metadata}
        kept = replace(kept, user=kept.user or above.user, metadata=metadata)
    deps = parent.terms.deps if own.deps is None else own.deps
    if (
        own.deps is None
        and plan.config.deps_factory is not None
        and not all(_has_type(deps, kind) for _, kind in plan.deps_needed)
    ):
        deps = None
    return Given(kept, deps, own.model, own.prompt)


def _check_extras(extras: object) -> dict[str, Any]:
    if not isinstance(extras, Mapping) or not all(isinstance(key, str) for key in extras):
        raise ConfigurationError(f"extras must be a mapping with str keys, not {short_repr(extras, 100)}")
    try:
        return _wire.loads(_wire.encode(dict(extras)))  # type: ignore[no-any-return]
    except Exception as error:
        raise ConfigurationError(
            f"extras cannot be written as JSON ({error}); pass str, numbers, booleans, None, lists and dicts"
        ) from None


def _tool_choice(choice: object, *, tools: tuple[Tool, ...], more_tools: bool) -> str:
    names = [tool.name for tool in tools]
    if not isinstance(choice, str) or (choice not in TOOL_CHOICES and choice not in names and not more_tools):
        raise ConfigurationError(
            f"tool_choice must be auto, required, none or the name of a tool; got {short_repr(choice, 100)}"
        )
    return choice


def check_metadata(metadata: object) -> dict[str, str]:
    """The metadata of a run as vendors take it, or a `ConfigurationError`."""
    if not isinstance(metadata, Mapping):
        raise ConfigurationError(f"metadata must be a mapping of str to str, not {short_repr(metadata, 100)}")
    if len(metadata) > MOST_PAIRS:
        raise ConfigurationError(f"metadata has {len(metadata)} entries; {MOST_PAIRS} are the most a vendor takes")
    for key, value in metadata.items():
        _check_short("metadata: a key", key, LONGEST_KEY)
        _check_short(f"metadata[{key!r}]", value, LONGEST_VALUE, least=0)
    return dict(metadata)


def check_user(user: object) -> str:
    """The user of a run as vendors take it, or a `ConfigurationError`."""
    return _check_short("user", user, LONGEST_USER)


def _check_short(field: str, text: object, most: int, least: int = 1) -> str:
    if not isinstance(text, str) or not least <= len(text) <= most:
        size = f"{least} to {most}" if least else f"at most {most}"
        raise ConfigurationError(f"{field} must be a str of {size} characters, not {short_repr(text, 100)}")
    check_sendable(field, text)
    return text


# --- the prompt and the session ---------------------------------------------------------------------------------

_ROLES = frozenset({"system", "user", "assistant", "tool_result", "custom", "unknown"})


def as_messages(prompt: object, config: LoopConfig) -> tuple[Message, ...]:
    """A prompt as messages; raises `ConfigurationError` for what cannot be sent."""
    if isinstance(prompt, str):
        if not prompt.strip():
            raise ConfigurationError("prompt is empty: say what the agent should do")
        check_sendable("prompt", prompt)
        return (UserMessage(str.__str__(prompt)),)  # of a subclass, the text: nothing else can be written
    if getattr(prompt, "role", None) in _ROLES:
        prompt = (prompt,)
    if not isinstance(prompt, Sequence) or isinstance(prompt, bytes) or not prompt:
        raise ConfigurationError(
            f"prompt must be a str or a non-empty sequence of messages, not {type(prompt).__name__}"
        )
    if (joined := join_parts(prompt)) is not None:
        prompt = (joined,)
    for message in prompt:
        if not isinstance(message, Message):
            raise ConfigurationError(
                f"prompt must hold messages such as glidepath.messages.UserMessage('...'), not {type(message).__name__}"
            )
        _check_message(message)
        _check_pictures(message, config)
    return tuple(repair(prompt, keep_custom=True))


def _check_pictures(message: object, config: LoopConfig) -> None:
    """A picture or file that is too large would be refused by the provider, in this run and in every later one."""
    content = getattr(message, "content", None)
    if type(content) is not tuple:
        return
    for block in content:
        size = len(block.data or b"") if type(block) is not TextBlock else 0
        if type(block) is FileBlock:
            _check_file(block)
        what, article = ("file", "a file") if type(block) is FileBlock else ("image", "an image")
        most = getattr(config, f"max_{what}_bytes")
        if size > most:
            raise ConfigurationError(
                f"prompt: {article} has {size} bytes, more than max_{what}_bytes={most}; "
                f"make it smaller, or raise max_{what}_bytes if your model takes it"
            )
    total, most = picture_bytes(content), config.max_image_bytes_per_request
    if total > most:
        raise ConfigurationError(
            f"prompt: its images and files take {total} bytes together, more than max_image_bytes_per_request={most}; "
            "send fewer or smaller ones, or raise the setting if your model takes them"
        )


def _check_file(file: FileBlock) -> None:
    named = f" {file.name!r:.100}" if file.name else ""
    if not file.kind:
        hint = "use an ImageBlock for a picture" if file.media_type.startswith("image/") else "check media_type"
        raise ConfigurationError(
            f"prompt: the file{named} has media_type={file.media_type!r:.100}, which no provider is known to take; "
            f"{hint}"
        )
    if not file.data and not file.url:
        raise ConfigurationError(f"prompt: the file{named} needs data or a url; it has neither")


def _check_message(message: Message) -> None:
    """Messages are built unchecked, for speed: those from outside are read once as they would be from a file."""
    try:
        codec.decode(codec.encode(message))
    except (WireError, TypeError, ValueError, RecursionError) as error:
        raise ConfigurationError(f"prompt: this {message.role} message cannot be sent: {error}") from None
    check_sendable("prompt", message.text)


def as_session(session: object) -> Session:
    """The session itself, or one with this id."""
    if isinstance(session, Session):
        return session
    if session is None or isinstance(session, str):
        return Session(session)
    raise ConfigurationError(f"session must be an id or a Session, not {type(session).__name__}")


# --- keywords that a run does not take, and where what was meant belongs ----------------------------------------

_MEANT = {
    **dict.fromkeys(("history", "message_history", "messages", "conversation", "thread_id", "session_id"), "session"),
    **dict.fromkeys(("context", "dependencies"), "deps"),
    **dict.fromkeys(("budget", "wallet"), "parent"),
    **dict.fromkeys(("instructions", "system"), "system_prompt"),
    **dict.fromkeys(("cancel_token", "token"), "cancel"),
    "llm": "model",
    "user_id": "user",
}
"""What a keyword of a run is called elsewhere."""


def check_keywords(keywords: Iterable[str], known: frozenset[str]) -> None:
    """Raise a `ConfigurationError` for a keyword that is none of the `known` ones; it says what to write instead."""
    name = next((one for one in keywords if one not in known), None)
    if name is None:
        return
    known |= {"prompt"}
    limit = name if name in Limits.__struct_fields__ else OTHER_LIMIT_NAMES.get(name)
    meant = _MEANT.get(name) or close_to(name, known)
    hint = ""
    if name == "prompt":
        hint = "; resume continues what was asked: for another message use agent.run(message, session=...)"
    elif name in Continued.__annotations__:
        hint = f"; it is for a run that continues: agent.resume(..., {name}=...)"
    elif name in NewRun.__annotations__:
        hint = f"; it is for a new run: agent.run(..., {name}=...)"
    elif meant in known:
        hint = f"; did you mean {meant!r}?"
    elif limit is not None:
        hint = f"; it is a limit: agent.run(..., limits=Limits({limit}=...))"
    elif name in FIELDS:
        hint = f"; it is a setting of the agent: agent.replace({name}=...).run(...)"
    raise ConfigurationError(f"a run takes no keyword {name!r}{hint}")
