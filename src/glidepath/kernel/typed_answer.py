"""The answer as the type that was asked for: read, shown to the validators, and asked for again when it does not do."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from glidepath._wire import replace
from glidepath.run import ask_until_opinion, make_context, report, to_read
from glidepath.spi import OutputContext
from glidepath.tools import OutputError
from glidepath.values import AskAgain, GuardTripped, describe_error

if TYPE_CHECKING:
    from glidepath.run import Run

HOOK = "output_validators"


class ValidatorError(OutputError):
    """A validator crashed, hung or was cancelled: nobody knows whether the answer is good, and none is delivered."""


async def check_output(run: Run, *, delivered: bool = False) -> Any:
    """The value of the answer, as the validators leave it; raises `OutputError` when there is none.

    `delivered`: the result of the tool that ended the run may be it. An answer that has passed is not checked again.
    """
    output: Any = run.plan.output
    text, answer = run.answer.text, run.answer
    if delivered and run.turn.results:
        with suppress(OutputError):
            text, value = run.turn.results[-1].text, output.read(run.turn.results[-1].text)
            return await _ask_validators(run, text, value)
        text = run.answer.text
    if answer.checked is None or answer.checked[0] != text:
        try:
            answer.accept_output(text, await _ask_validators(run, text, output.read(text)))
        except OutputError as error:
            answer.reject_output(text, error)
    _, value, problem = answer.checked  # type: ignore[misc] # set just now
    if problem is not None:
        raise problem
    return value


async def ask_again(run: Run) -> bool:
    """Ask for another answer than one that does not do; False when it does, or was asked for often enough."""
    try:
        await check_output(run)
    except ValidatorError:
        return False
    except OutputError as error:
        if run.answer.output_repairs >= run.plan.config.output_retries:
            return False
        run.answer.count_repair()
        run.emit(GuardTripped, "output_type", "recover", str(error))
        complaint = run.plan.output.complaint(str(error), run.plan.config.texts)  # type: ignore[union-attr]
        run.transcript.queue_notice("output_repair", "output_type", complaint)
        return True
    return False


async def _ask_validators(run: Run, text: str, value: object) -> Any:
    """The value after every validator has seen it; raises `OutputError` with what the model is to be told."""
    validators = run.plan.config.output_validators
    if not validators:
        return value
    voices = iter([(_name(one), one) for one in validators])
    messages = to_read(run, run.transcript.messages)
    context = make_context(run, OutputContext, output=value, text=text, messages=messages)
    while (asked := ask_until_opinion(run, HOOK, voices, context)) is not None and (said := await asked) is not None:
        if said.fault is None:
            context = replace(context, output=said.answer)
        elif isinstance(said.fault.raised, AskAgain):
            raise OutputError(str(said.fault.raised) or f"{said.name} did not accept it")
        else:
            report(run, HOOK, said.name, said.fault, "the run fails")
            raise ValidatorError(f"the validator {said.name!r} gave no answer: {_explain(said.fault)}")
    return context.output


def _explain(fault: BaseException) -> str:
    raised = getattr(fault, "raised", None)
    return str(fault) if raised is None else describe_error(raised)


def _name(validator: object) -> str:
    return str(getattr(validator, "__name__", None) or type(validator).__name__)
