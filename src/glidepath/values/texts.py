"""Every sentence the runtime tells a model, in one value that an application can change."""

from __future__ import annotations

from collections.abc import Mapping
from string import Formatter
from types import MappingProxyType

from glidepath._wire import Settings
from glidepath.values.errors import ConfigurationError, close_to

LONGEST_TEXT = 4_000  # characters: a text must fit where little is left


class Texts(Settings, frozen=True, kw_only=True, repr_omit_defaults=True):
    """What the runtime tells a model, word for word. Checked at construction; the defaults name no tool.

    A text may use the placeholders of its default, such as `{limit}`, each any number of times or not at all. Write
    a literal brace twice: `{{`.
    """

    wind_down: str = (
        "Your {limit} is almost used up. Stop working and give your final answer now: what is done, what is still "
        "open, what you found so far. Ask for input only if you cannot finish without it."
    )
    finish_up: str = (
        "You have been asked to finish. Stop working and give your final answer now: what is done, what is still "
        "open, what you found so far. Ask for input only if you cannot finish without it."
    )
    landing: str = (
        "The limit is reached and no tool can be called any more. Write your final answer now, from what you know: "
        "what was done, what is still open, and what was found so far."
    )
    continuation: str = (
        "Your answer was cut off. Continue exactly where it stopped: do not repeat anything and do not comment on it."
    )
    resend_smaller: str = "Not executed: your reply was cut off inside this tool call. Send it again, smaller."
    repetition: str = (
        "You are going in circles: {tools} was repeated without a new result ({times} times). "
        "Try something different, or answer with what you know."
    )
    same_answer: str = (
        "You are going in circles: {tools} gave the same answer to different arguments ({times} times). "
        "Try something different, or answer with what you know."
    )
    error_streak: str = "This does not work: {reason}. Change the approach, or answer with what you know."
    only_errors: str = (
        "Your last {times} steps all failed. Step back: find out why before you try again, change the approach, or "
        "answer with what you know."
    )
    read_only: str = "You have only read things for {steps} steps. Act on what you know, or answer."
    withdrawn: str = "{tools} can no longer be used: {reason}. Give your final answer with what you know."
    tool_withdrawn: str = "it was withdrawn because it was called again and again without progress"
    work_withdrawn: str = "no more work is possible: deliver your final answer now"
    not_executed: str = "Not executed: {reason}."
    premature_end: str = (
        "You stopped without an answer although a tool had just failed. Deal with the error, or say what went wrong."
    )
    empty_answer: str = "Your reply was empty. Give your answer as text."
    plain_text: str = "Your reply was plain text. Deliver it by calling the tool {tool!r}."
    output_repair: str = "Your answer does not fit the format that is asked for: {problem}. Answer again."
    resumed: str = "The run was interrupted and has been resumed. Continue the task where it was left."
    forked: str = (
        "This conversation is a copy of an earlier one, taken after turn {turn}. The earlier one continued, and made "
        "these calls. They may have taken effect, so find out before you repeat one: {calls}"
    )
    repaired: str = (
        "A part of this conversation was damaged and is lost. Calls that were made in it may have taken effect, so "
        "find out before you repeat one: {calls}"
    )
    interrupted: str = "Interrupted: this call has no result. Whether it took effect is not known."
    unknown_effect: str = "Outcome unknown: {reason}. It may have taken effect; find out before you repeat it."
    not_decided: str = "Not executed: this call was waiting for a person, and a new message came first."
    denied: str = "Denied by a person: {reason}"
    blocked: str = "Blocked: {reason}"
    guard_failed: str = "Blocked: a guard of this tool failed."
    unknown_tool: str = "{advice}"
    hidden_tool: str = "{advice}"
    bad_arguments: str = "{problem}"
    breaker_open: str = (
        "Not executed: {tool} failed {failures} times in a row and is switched off for now. It can be tried again in "
        "{seconds} s. Use another way, or say that it does not work."
    )
    policy_failed: str = "Not executed: the protocol policy of this application failed to read the call."
    tool_gone: str = "Not executed: the tool {tool!r} no longer exists."
    unfinished: str = (
        "Outcome unknown: this call had begun, and did not continue: {reason}. It may have taken effect; find out "
        "before you repeat it."
    )
    not_started: str = "Not started: {reason}."
    not_begun: str = "Not executed: the run was interrupted before this call began."
    redacted_call: str = (
        "Not executed: the run was interrupted before this call began, and its arguments were redacted when they were "
        "stored. Make it again if it is still needed."
    )
    stopped: str = "The tool was stopped: {reason}."
    not_stopped: str = "The tool did not stop when asked to ({reason}); it may still be running."
    cancelled_inside: str = "CancelledError: the tool cancelled itself"
    calls_per_turn: str = "Skipped: at most {limit} tool calls run in one turn. Send it again if you still need it."
    calls_spent: str = "Skipped: the limit on tool calls is reached."
    partial_child: str = "This answer is partial. The agent ended {ended} ({reason})."
    paused_child: str = (
        "The agent stopped before this was done: {waiting}. A person has to decide, and did not. Nothing of it was "
        "executed. Do without it, or say in your answer what has to be decided."
    )

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            text = getattr(self, name)
            if text is not _DEFAULTS.get(name):
                _check(name, text)

    @classmethod
    def no_such_setting(cls, name: str) -> ConfigurationError:
        """The error for a keyword that is not a text."""
        close = close_to(name, cls.__struct_fields__)
        hint = f"; did you mean {close!r}?" if close else f"; the texts are {', '.join(cls.__struct_fields__)}"
        return ConfigurationError(f"Texts has no text named {name!r:.80}{hint}")

    def fill(self, name: str, **values: object) -> str:
        """The text of this name, its placeholders replaced."""
        return str(getattr(self, name)).format_map(values)


_DEFAULTS: dict[str, str] = {}


def _check(name: str, text: object) -> None:
    """Refuse a text that could not be sent, stored or filled in."""
    if not isinstance(text, str) or not text.strip():
        raise ConfigurationError(f"Texts.{name} must be a sentence, not {text!r:.80}")
    if len(text) > LONGEST_TEXT:
        raise ConfigurationError(
            f"Texts.{name} has {len(text):,} characters; a text has at most {LONGEST_TEXT:,}: it must fit where little "
            "is left of a budget"
        )
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ConfigurationError(f"Texts.{name} is not valid Unicode: a lone surrogate at {error.start}") from None
    if "\0" in text:
        raise ConfigurationError(f"Texts.{name} holds a NUL character; it cannot be stored")
    allowed = PLACEHOLDERS[name]
    may = f"it may use {', '.join(f'{{{one}}}' for one in sorted(allowed))}" if allowed else "it has no placeholders"
    try:
        fields = [(field, spec) for _, field, spec, _ in Formatter().parse(text) if field is not None]
    except ValueError as error:
        raise ConfigurationError(f"Texts.{name} cannot be read: {error}; write a literal brace twice, {{{{") from None
    for field, spec in fields:
        if field not in allowed or spec:
            raise ConfigurationError(
                f"Texts.{name} uses the placeholder {{{field:.40}}}; {may} (write a literal brace twice, {{{{)"
            )


_DEFAULTS.update(zip(Texts.__struct_fields__, Texts.__struct_defaults__, strict=True))
PLACEHOLDERS: Mapping[str, frozenset[str]] = MappingProxyType(
    {name: frozenset([part[1] for part in Formatter().parse(text) if part[1]]) for name, text in _DEFAULTS.items()}
)
"""What each text may name in braces: what its default does."""
