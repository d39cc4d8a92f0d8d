"""Plain text where a delivery tool was expected: counted as that tool's call, at once or after asking for the call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from glidepath._wire import replace
from glidepath.run import report
from glidepath.tools import clean
from glidepath.values import GuardTripped, StopReason, ToolCall, ToolEnded, ToolResultMessage, is_visible

if TYPE_CHECKING:
    from glidepath.run import Run
    from glidepath.values import AssistantMessage

NAME = "plain_text_fallback"
MAX_NUDGES = 2
_USUAL = ("text", "answer", "message", "content", "result", "summary", "output")


def take_as_call(run: Run, reply: AssistantMessage, *, may_nudge: bool) -> AssistantMessage:
    """The reply with a call of the fallback tool added, when its text counts as one; else the reply itself.

    Its text is in `run.text` already. What was kept of an earlier reply goes first: the first text that asks nothing.
    """
    config = run.plan.config
    fallback: Any = config.plain_text_terminal_fallback_tool
    allowed = frozenset(run.plan.tools) if run.turn.allowed is None else run.turn.allowed
    if fallback not in allowed or not is_visible(reply.text):
        return reply
    nudges, kept = run.answer.plain_text
    if not kept and not is_question(run.answer.text):
        kept = run.answer.text
    run.answer.keep_plain_text(nudges, kept)
    narrowed = allowed <= run.plan.terminal_tools
    if not narrowed and not config.plain_text_terminal_fallback_eager:
        return reply
    if not narrowed and config.plain_text_terminal_fallback_eager_nudge and nudges < MAX_NUDGES and may_nudge:
        return reply
    if not kept:
        return reply  # it only ever asked back: that is for a person to answer
    run.answer.keep_text(kept)
    call_id = f"plain_text_{run.turn.iterations}"
    while call_id in run.transcript.call_ids:
        call_id += "_"
    run.transcript.remember_call(call_id)
    call = ToolCall(call_id, fallback, {_find_text_parameter(run.plan.tools[fallback].spec.parameters): kept})
    return replace(reply, blocks=(*reply.blocks, call), stop_reason=StopReason.TOOL_USE)


def use_text_as_result(run: Run, call: ToolCall) -> None:
    """The kept text becomes the result of the call: the tool itself is not run."""
    message = ToolResultMessage(call.id, call.name, run.answer.text)
    run.emit(GuardTripped, NAME, "deliver", "plain text counted as the delivery", (call.name,))
    run.emit(ToolEnded, call.id, call.name, message)
    run.add(message)
    run.turn.answer((message,))


def make_nudge(run: Run) -> str | None:
    """What to tell a model that wrote plain text instead of calling the tool; None when there is nothing to say."""
    config = run.plan.config
    fallback: Any = config.plain_text_terminal_fallback_tool
    nudges, kept = run.answer.plain_text
    wanted = config.plain_text_terminal_fallback_eager and config.plain_text_terminal_fallback_eager_nudge
    if not wanted or nudges >= MAX_NUDGES or not is_visible(run.answer.text):
        return None
    allowed = run.plan.tools if run.turn.allowed is None else run.turn.allowed
    if fallback not in allowed:
        return None
    run.answer.keep_plain_text(nudges + 1, kept)
    run.emit(GuardTripped, NAME, "recover", "plain text instead of a call", (fallback,))
    return _policy_text(run, fallback)


def _policy_text(run: Run, tool: str) -> str:
    """The policy's words; the default texts when it has none, or fails."""
    from glidepath.spi import ProtocolPolicy

    ours = run.plan.config.texts.fill("plain_text", tool=tool)
    if type(run.plan.policy).plain_text_recovery_prompt is ProtocolPolicy.plain_text_recovery_prompt:
        return ours
    try:
        text: Any = run.plan.policy.plain_text_recovery_prompt(run.answer.text, tool)
        if not isinstance(text, str) or not is_visible(text):
            raise TypeError(f"plain_text_recovery_prompt must return a text, not {text!r:.100}")
        return clean(text)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        report(run, "plain_text_recovery_prompt", "protocol_policy", error, "default text")
        return ours


def is_question(text: str) -> bool:
    """True when the text ends by asking something."""
    return text.rstrip(" \t\r\n*_`\"')]}!\u201d\u2019\u00bb").endswith(("?", "\uff1f", "\u061f", "\u2048", "\u203d"))


def _find_text_parameter(schema: Mapping[str, Any]) -> str:
    """The parameter the text belongs in: the only one, a required text, or one with a usual name."""
    properties: Mapping[str, Any] = schema.get("properties", {})
    if len(properties) == 1:
        return next(iter(properties))
    texts = [name for name, kind in properties.items() if isinstance(kind, Mapping) and kind.get("type") == "string"]
    required = [name for name in texts if name in schema.get("required", ())]
    for names in (required, texts):
        if len(names) == 1:
            return names[0]
        for usual in _USUAL:
            if usual in names:
                return usual
    return _USUAL[0]
