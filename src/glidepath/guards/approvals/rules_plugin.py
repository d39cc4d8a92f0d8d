"""The rules at work: asked like every guard before a call runs, and once more after a person has approved it."""

from __future__ import annotations

from typing import ClassVar

from glidepath.guards.approvals.rules import Rules, decide, read_rules
from glidepath.spi import Allow, Ask, BeforeDecision, Block, Gate, GateContext, Plugin, ToolCallContext


class ApprovalRules(Plugin):
    """Blocks, asks about or allows a call by the rules. Children inherit what denies and asks, never what allows."""

    name = "approval_rules"
    inheritable_to_child: ClassVar[bool | None] = True

    def __init__(self, rules: Rules) -> None:
        self._rules = read_rules(rules)

    def for_child(self) -> Plugin | None:
        """The same without the rules that allow: what a child may do without asking, its own settings say."""
        kept = tuple(rule for rule in self._rules if rule.verdict != "allow")
        if not kept:
            return None
        own = object.__new__(_InheritedRules)
        own._rules = kept
        return own

    def before_tool_call(self, context: ToolCallContext) -> BeforeDecision:
        """What the first rule about this call says; nothing when there is none."""
        found = decide(self._rules, context.call.name, context.tool, context.arguments)
        if found is None:
            return None
        if found.verdict == "deny":
            # The rule's own words are for people: a file in the folder may have written them.
            return Block("a rule forbids this call; do not try another way, say what you wanted to do", rule=found.rule)
        if found.verdict == "ask":
            usual = getattr(context.tool, "approval_reason", None)  # such as that there is no sandbox
            return Ask(f"{found.rule} asks{f'; {usual}' if usual else ''}", rule=found.rule)
        return Allow(rule=found.rule)


class _InheritedRules(ApprovalRules):
    """The rules of the agent that has started this one. An agent's own rules are checked when it is made."""

    def tool_gate(self, context: GateContext) -> Gate | None:
        """Nobody is asked about what runs at the provider: a tool that a rule would hold is not offered at all."""
        held = frozenset([name for name in context.hosted_tools if any(rule.names(name) for rule in self._rules)])
        if not held:
            return None
        why = "a rule of the agent that started this one holds it, and it runs at the provider, where nobody is asked"
        return Gate(allowed=context.tools - held, denial_reason=why, required=True)
