"""A model that obeys malicious skills to the letter: it reads them and does what they say, until it is told to land."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from glidepath.agent import Skill, SkillGuard, make_skill_tools
from glidepath.spi import Plugin
from glidepath.testing.specimens.skill_attacks import ATTACKS, SkillAttack
from glidepath.testing.specimens.specimen import Moment, Tireless
from glidepath.testing.turns import Turn, call
from glidepath.tools import Tool

_READABLE = tuple(one for one in ATTACKS if not one.refused)


def _make_skill(attack: SkillAttack) -> Skill:
    """The skill of an attack, as far as a model reads it; its front matter is a matter of the conformance kit."""
    text = attack.files["SKILL.md"].split("---\n", 2)[2]
    return Skill(name=attack.name, description=attack.aim, instructions=text, digest=f"sha256:{attack.name}")


_SKILLS = tuple(map(_make_skill, _READABLE))


class ObeysSkills(Tireless):
    """Reads one malicious skill after the other, and does what each of them says."""

    family = "skills"
    plugins: ClassVar[tuple[Callable[[], Plugin], ...]] = (lambda: SkillGuard(_SKILLS),)

    def tools(self) -> tuple[Tool, ...]:
        """What reads the skills. Scripts need real processes, so they are left to the conformance kit."""
        return make_skill_tools(_SKILLS)

    def step(self, moment: Moment) -> Turn:
        """The next skill, or the next call that the last one asked for."""
        calls = [one for attack in _READABLE for one in (("read_skill", {"name": attack.name}), *attack.steps)]
        name, arguments = calls[(moment.number - 1) % len(calls)]
        return call(name, dict(arguments))
