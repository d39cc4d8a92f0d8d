"""A summary of the agent when a leg of a run began, and what has changed since."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from hashlib import blake2b
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from glidepath._wire import Value, canonical
from glidepath.values import ConfigurationChange, dollars

if TYPE_CHECKING:
    from glidepath.plugins import HookTable
    from glidepath.run.plan import Plan
    from glidepath.tools import Tool

_PARTS = ("agent", "model", "fallback_models", "system_prompt", "output_type")
_MAPS = (
    ("limit", "limits"),
    ("tool", "tools"),
    ("skill", "skills"),
    ("plugin", "plugins"),
    ("constraint", "constraints"),
)


class Fingerprint(Value, frozen=True, kw_only=True, omit_defaults=True):
    """An agent, as the journal keeps it: names and figures as they are, texts and schemas as digests."""

    agent: str = ""
    model: str = ""
    fallback_models: str = ""
    system_prompt: str = ""
    output_type: str = ""
    limits: Mapping[str, str] = {}
    tools: Mapping[str, str] = {}
    plugins: Mapping[str, str] = {}
    constraints: Mapping[str, str] = {}
    skills: Mapping[str, str] = {}
    """The digest of each skill's whole folder."""

    @property
    def digest(self) -> str:
        """Equal for equal agents."""
        return _digest(canonical(self))


_KNOWN: WeakKeyDictionary[HookTable, tuple[Fingerprint, str]] = WeakKeyDictionary()
"""Made once for each configuration: every one has its own line-up."""
_MOST_ALIKE = 64
_ALIKE: dict[str, tuple[Fingerprint, str]] = {}
"""By digest, the last ones: a thousand agents that are alike share one."""


def fingerprint(plan: Plan) -> tuple[Fingerprint, str]:
    """A description of this agent, and its digest."""
    known = _KNOWN.get(plan.lineup)
    if known is None:
        made = _make_fingerprint(plan)
        digest = made.digest
        if len(_ALIKE) >= _MOST_ALIKE:
            _ALIKE.clear()
        known = _KNOWN[plan.lineup] = _ALIKE.setdefault(digest, (made, digest))
    return known


def _make_fingerprint(plan: Plan) -> Fingerprint:
    caps = plan.caps
    plans = (plan,) if plan.route is None else plan.route.plans
    limits = {
        "max_iterations": caps.turns,
        "max_tokens": caps.tokens,
        "max_cost": None if caps.money is None else dollars(caps.money),
        "timeout": plan.timeout,
        "max_tool_calls": caps.tool_calls,
        "max_depth": caps.depth,
        "max_descendants": caps.descendants,
    }
    return Fingerprint(
        agent=plan.config.agent_name,
        model=plans[0].model_name,
        fallback_models=", ".join(one.model_name for one in plans[1:]),
        system_prompt=_digest(plan.system_prompt.encode(errors="replace")) if plan.system_prompt else "",
        output_type="" if plan.output is None else _digest_schema(plan.output.schema or "text"),
        limits={name: str(value) for name, value in limits.items() if value is not None},
        tools={name: _digest_tool(tool) for name, tool in plan.tools.items()},
        plugins=dict.fromkeys(_list_guarding_plugins(plan), "in use"),
        constraints=dict.fromkeys([constraint.name for constraint in plan.custom], "in use"),
        skills={skill.name: skill.digest for skill in plan.config.skills},
    )


def _list_guarding_plugins(plan: Plan) -> list[str]:
    """The plugins that can affect a run; pure observers do not count."""
    if not plan.lineup.plugins:
        return []
    names = plan.lineup.names()
    return [one for hook in names.__struct_fields__ if hook != "event_observer" for one in getattr(names, hook)]


def _digest_tool(tool: Tool) -> str:
    """Its parameters, and what matters when a call of it was interrupted."""
    marks = [mark for mark in ("idempotent", "requires_approval", "terminal") if getattr(tool, mark)]
    return " ".join([_digest_schema(tool.parameters), *marks])


def _digest_schema(schema: object) -> str:
    """The digest of a schema, also of one that is not JSON."""
    try:
        return _digest(canonical(schema))
    except Exception:
        return _digest(repr(schema).encode(errors="replace"))


def _digest(data: bytes) -> str:
    return blake2b(data, digest_size=6).hexdigest()


def find_differences(before: Fingerprint, now: Fingerprint) -> Iterator[ConfigurationChange]:
    """What is different, part by part."""
    for part in _PARTS:
        old, new = getattr(before, part), getattr(now, part)
        if old != new:
            yield ConfigurationChange(what=part, before=old or None, now=new or None)
    for what, field in _MAPS:
        then: Mapping[str, Any] = getattr(before, field)
        today: Mapping[str, Any] = getattr(now, field)
        for name in [*then, *[name for name in today if name not in then]]:
            if then.get(name) != today.get(name):
                yield ConfigurationChange(what=what, name=name, before=then.get(name), now=today.get(name))
