"""The contract of a `ProtocolPolicy`, clause by clause."""

from __future__ import annotations

from collections.abc import Mapping

from glidepath import _wire
from glidepath.spi import ProtocolPolicy
from glidepath.testing.conformance.contract import Contract, missing
from glidepath.values import ToolCall

TEXTS = ("", "Here you are.", "What do you mean?", "\u202e\U0001f6eb", "word " * 50_000)
KNOWN = frozenset({"search", "finish"})


class ProtocolPolicyContract(Contract):
    """Subclass this and provide `make_policy`; `aliases` maps the names that it repairs to the right tools."""

    aliases: Mapping[str, str] = {}

    def make_policy(self) -> ProtocolPolicy:
        """The policy as a user would create it."""
        raise NotImplementedError(missing(self, "make_policy"))

    def test_policy_1_terminal_tools_are_names(self) -> None:
        """POLICY-1: `terminal_tool_names` is a frozenset of names, and always the same."""
        policy = self.make_policy()
        names = policy.terminal_tool_names
        assert isinstance(names, frozenset)
        assert all(isinstance(name, str) and name for name in names), names
        assert policy.terminal_tool_names == names

    def test_policy_2_the_prompt_names_the_tool(self) -> None:
        """POLICY-2: the prompt after plain text is a text that names the tool, whatever the model said."""
        policy = self.make_policy()
        for text in TEXTS:
            prompt = policy.plain_text_recovery_prompt(text, "finish")
            assert isinstance(prompt, str), f"it answered {prompt!r:.100}"
            assert "finish" in prompt

    def test_policy_3_calls_are_repaired_one_for_one(self) -> None:
        """POLICY-3: there are as many repaired calls, in the same order, with the same ids and arguments."""
        policy = self.make_policy()
        for given in _batches(self.aliases):
            tools = KNOWN | set(self.aliases.values())
            repaired = list(policy.normalize_tool_calls(given, tools))
            assert all(isinstance(call, ToolCall) for call in repaired), repaired
            assert [(call.id, call.arguments) for call in repaired] == [(call.id, call.arguments) for call in given]

    def test_policy_4_right_names_stay(self) -> None:
        """POLICY-4: a call of an existing tool is not changed."""
        policy, names = self.make_policy(), KNOWN | set(self.aliases.values()) | set(self.aliases)
        for name in sorted(names):
            (call,) = policy.normalize_tool_calls([ToolCall("c", name, {})], names)
            assert call.name == name

    def test_policy_5_aliases_become_the_tools_that_are_meant(self) -> None:
        """POLICY-5: an alias becomes the tool it stands for."""
        policy, names = self.make_policy(), KNOWN | set(self.aliases.values())
        for alias, meant in self.aliases.items():
            (call,) = policy.normalize_tool_calls([ToolCall("c", alias, {})], names)
            assert call.name == meant

    def test_policy_6_nothing_is_made_up(self) -> None:
        """POLICY-6: a name is only ever replaced by the name of a tool that is available now."""
        policy = self.make_policy()
        for names in (KNOWN, frozenset[str]()):
            for given in _batches(self.aliases):
                for before, after in zip(given, policy.normalize_tool_calls(given, names), strict=False):
                    assert after.name == before.name or after.name in names, f"{before.name} became {after.name}"

    def test_policy_7_what_it_is_given_stays_as_it_is(self) -> None:
        """POLICY-7: it changes neither the calls it is given nor the list they are in."""
        policy = self.make_policy()
        for given in _batches(self.aliases):
            before = _wire.encode(given)
            policy.normalize_tool_calls(given, KNOWN | set(self.aliases.values()))
            assert _wire.encode(given) == before

    def test_policy_8_a_hidden_tool_has_an_explanation_or_none(self) -> None:
        """POLICY-8: the error about a hidden tool is None or a non-empty text, even when no tool is left."""
        policy = self.make_policy()
        for available in ([], ["finish"], [f"tool_{number}" for number in range(300)]):
            said = policy.hidden_tool_error("search", available)
            assert said is None or (isinstance(said, str) and said.strip()), repr(said)

    def test_policy_9_it_is_pure(self) -> None:
        """POLICY-9: the same question has the same answer: one policy serves all runs."""
        policy, names = self.make_policy(), KNOWN | set(self.aliases.values())
        for given in _batches(self.aliases):
            answers = [list(policy.normalize_tool_calls(given, names)) for _ in range(3)]
            assert answers.count(answers[0]) == 3
        prompts = {policy.plain_text_recovery_prompt("Here you are.", "finish") for _ in range(3)}
        errors = {policy.hidden_tool_error("search", ["finish"]) for _ in range(3)}
        assert (len(prompts), len(errors)) == (1, 1)


def _batches(aliases: Mapping[str, str]) -> list[list[ToolCall]]:
    names = ["search", "finish", "no such tool", "", *aliases, *aliases.values()]
    calls = [ToolCall(f"c{number}", name, {"q": [number], "deep": {"a": name}}) for number, name in enumerate(names)]
    return [[], *[[call] for call in calls], calls, calls[::-1]]
