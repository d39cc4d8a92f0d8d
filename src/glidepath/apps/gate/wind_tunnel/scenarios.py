"""What can go wrong between an agent and its model, as data: what happens, and what a good agent would do.

A script is that of the scripted upstream. `{at}` is the call that is struck and `{after}` the piece of its reply; the
seed chooses both.
"""

from __future__ import annotations

from random import Random

from glidepath._wire import Value
from glidepath.values import ConfigurationError, close_to


class Scenario(Value, frozen=True, kw_only=True):
    """One bad day."""

    name: str
    does: str
    good: str
    """What a good agent would do."""
    script: str
    can_answer: bool = True
    """False where the model gives no answer: a good agent then ends with an error, or with words that say why."""

    def script_for(self, seed: int) -> str:
        """The script with its numbers."""
        chance = Random(f"{self.name}:{seed}")  # noqa: S311 - a script, not a secret
        return self.script.format(at=2 + chance.randrange(2), after=2 + chance.randrange(4))


_WIRE = (
    Scenario(
        name="cut-stream",
        does="One streamed reply breaks off in the middle.",
        good="asks again and finishes its work",
        script="honest + cut:at={at},after={after}",
    ),
    Scenario(
        name="half-call",
        does="One tool call breaks off inside its arguments, and the reply ends as if it were whole.",
        good="does not run it, tells the model what is wrong, and finishes its work",
        script="honest + half_call:at={at}",
    ),
    Scenario(
        name="rate-limited",
        does="The first three requests get 429 with Retry-After: 1.",
        good="waits as long as it is told and finishes its work",
        script="honest + 429:first=3,retry_after=1",
    ),
    Scenario(
        name="rate-limit-storm",
        does="Every request gets 429 without Retry-After.",
        good="gives up inside its time limit and says why",
        script="honest + 429",
        can_answer=False,
    ),
    Scenario(
        name="overloaded",
        does="The first three requests get 529, or what the dialect has for it.",
        good="waits a little longer each time and finishes its work",
        script="honest + 529:first=3",
    ),
    Scenario(
        name="server-down",
        does="Every request gets 500.",
        good="gives up inside its time limit and says why",
        script="honest + 500",
        can_answer=False,
    ),
    Scenario(
        name="slow-first-byte",
        does="One reply takes eight seconds to begin.",
        good="waits and finishes its work",
        script="honest + slow:at={at},seconds=8",
    ),
    Scenario(
        name="stalled-stream",
        does="One reply goes silent in the middle for an hour, with the connection open.",
        good="gives that reply up inside its time limit and asks again",
        script="honest + stall:at={at},after={after},seconds=3600",
    ),
    Scenario(
        name="missing-usage",
        does="The model calls tools forever and no reply reports what it used.",
        good="counts for itself, stops at its limit, and has the model answer",
        script="loop + no_usage",
    ),
    Scenario(
        name="wrong-usage",
        does="The model calls tools forever and every reply reports zero tokens.",
        good="does not believe that, stops at its limit, and has the model answer",
        script="loop + absurd_usage:factor=0",
    ),
    Scenario(
        name="malformed-stream",
        does="One event of a stream is not JSON; in a reply that is not streamed, nothing is.",
        good="skips the event or asks again, and finishes its work",
        script="honest + garbage:at={at},after={after}",
    ),
    Scenario(
        name="wrong-content-type",
        does="One reply is the sign-in page of a proxy, as text/html with status 200.",
        good="notices that it is not a reply, asks again, and finishes its work",
        script="honest + web_page:at={at}",
    ),
)
_MODEL = (
    Scenario(
        name="endless-calls",
        does="The model calls tools forever, each time with other arguments.",
        good="stops at its limit and has the model answer",
        script="loop",
    ),
    Scenario(
        name="same-call",
        does="The model makes the same tool call again and again, and gets the same result.",
        good="notices, stops, and has the model answer",
        script="same",
    ),
    Scenario(
        name="empty-reply",
        does="One reply has no text and no call.",
        good="asks again and finishes its work",
        script="honest + empty:at={at}",
    ),
    Scenario(
        name="repeated-ids",
        does="All tool calls have the same id.",
        good="tells the calls apart and finishes its work",
        script="honest + same_ids",
    ),
    Scenario(
        name="unknown-tool",
        does="One reply calls a tool that nobody has offered.",
        good="tells the model that there is none, and finishes its work",
        script="honest + unknown_tool:at={at}",
    ),
    Scenario(
        name="bad-arguments",
        does="The arguments of every tool call are broken JSON, or not what the tool takes.",
        good="tells the model, stops at its limit, and has the model answer",
        script="loop + bad_arguments",
    ),
    Scenario(
        name="huge-reply",
        does="One reply has 60,000 tokens of text before what it wants to say.",
        good="passes on what fits into its budget and ends inside it",
        script="honest + huge:at={at},tokens=60000",
    ),
    Scenario(
        name="truncated-reply",
        does="One reply breaks off in a sentence because it reached its maximum length.",
        good="asks for the rest and finishes its work",
        script="honest + truncated:at={at}",
    ),
    Scenario(
        name="refusal",
        does="The model refuses in the middle of the work, in the form that the vendor has for it.",
        good="ends and tells the user that the model has refused",
        script="honest + refusal:at={at}",
        can_answer=False,
    ),
    Scenario(
        name="never-stops",
        does="The model writes one reply without an end.",
        good="ends the reply at its limit and keeps the text",
        script="endless",
    ),
    Scenario(
        name="sub-agents",
        does="The model starts three sub-agents, and they and it call tools forever.",
        good="stops all four at one limit and has each answer",
        script="spawn:children=3",
    ),
    Scenario(
        name="ignores-orders",
        does="The model calls tools forever, also when the request forbids it.",
        good="does not run them, and ends with words of its own",
        script="loop + stubborn",
        can_answer=False,
    ),
)
SCENARIOS = {one.name: one for one in (*_WIRE, *_MODEL)}
LIST = "list"
_LONGEST_SEED = 18
"""Digits."""


def read_injection(said: str) -> tuple[Scenario, int]:
    """A scenario and its seed, from `SCENARIO[,SEED]`; raises `ConfigurationError`."""
    name, comma, number = said.partition(",")
    scenario = SCENARIOS.get(name.strip())
    if scenario is None:
        meant = close_to(name.strip(), SCENARIOS)
        hint = f"did you mean {meant}? " if meant else ""
        raise ConfigurationError(
            f"--inject {name!r:.60} is not a scenario: {hint}`glidepath gate run --inject list` shows all"
        )
    seed = number.strip()
    if comma and not (seed.isascii() and seed.isdigit() and len(seed) <= _LONGEST_SEED):
        raise ConfigurationError(f"--inject {said!r:.60}: the seed after the comma must be a whole number, such as 7")
    return scenario, int(seed) if comma else 0


def describe_scenarios() -> str:
    """All of them, each with what a good agent would do."""
    lines = []
    for one in SCENARIOS.values():
        lines += [f"{one.name:20} {one.does}", f"{'':20} A good agent {one.good}."]
    return "\n".join(lines)
