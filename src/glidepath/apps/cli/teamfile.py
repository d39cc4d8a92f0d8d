"""A team in a file: members, roles, steps, reviewers and limits, by name."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar

from glidepath import teams
from glidepath.agent import Agent, AgentFile, Limits, shape_fields
from glidepath.apps.cli.agent_maker import make_model, make_tools
from glidepath.apps.cli.cli_context import CliContext
from glidepath.apps.cli.layers import Known, LoadedSettings, parse_file
from glidepath.tools import find_closest
from glidepath.values import ConfigurationError

_ENUMS: dict[str, type[Enum]] = {
    "risk_profile": teams.RiskProfile,
    "evaluator_preference": teams.EvaluatorPreference,
    "planner_failure_mode": teams.PlannerFailureMode,
    "dependency_failure": teams.DependencyFailure,
}
_AGENT = ("model", "system_prompt", "tools", "max_turns", "max_output_tokens", "temperature", "agent_file")
_TABLES = ("config", "limits", "rubric", "members", "roles", "steps", "planner", "judge", "senior")
_TOP = ("name", "model", "coordinator", *_TABLES)
_COORDINATORS = ("expert", "dispatch")
_TURNS = 20
T = TypeVar("T")


class TeamFile:
    """A team described in a file; raises `ConfigurationError` naming the file and the wrong key."""

    def __init__(self, path: Path, world: CliContext, *, approve: str = "ask", store: str | None = None) -> None:
        self._path = path
        self._approve, self._store = approve, store
        self._name = path.name
        self._world = world
        self._data = self._check_section("the file", parse_file(path, number=float), _TOP)

    def team(self, **more: Any) -> teams.Team:
        """The team itself."""
        sections = self._list("members")
        if not sections:
            raise ConfigurationError(f"{self._name}: a team needs members: write [[members]] with a name and a model")
        members = []
        for number, section in enumerate(sections, 1):
            where = f"members[{number}]"
            said = self._check_section(where, section, ("name", "capabilities", *_AGENT))
            name = said.get("name", f"member{number}")
            agent = self._agent(where, said, str(name))
            capabilities = frozenset(self._names(where, said, "capabilities"))
            members.append(self._construct(where, teams.Member, name=name, agent=agent, capabilities=capabilities))
        name = self._data.get("name", "team")
        return self._construct("name", teams.Team, members=members, name=name, coordinator=self._coordinator(), **more)

    def request(self, goal: str, **more: Any) -> teams.TeamExecutionRequest:
        """What the team is asked to do."""
        roles = {}
        for number, section in enumerate(self._list("roles"), 1):
            said = self._check_section(f"roles[{number}]", section, teams.RoleDefinition.__struct_fields__)
            role = self._construct(f"roles[{number}]", teams.RoleDefinition, **said)
            if role.name in roles:
                raise ConfigurationError(f"{self._name}: roles[{number}]: there is already a role {role.name!r}")
            roles[role.name] = role
        steps = [self._step(number, section, roles) for number, section in enumerate(self._list("steps"), 1)]
        plan = self._construct("steps", teams.TeamExecutionPlan, steps=steps) if steps else None
        return teams.TeamExecutionRequest(
            goal=goal, roles=tuple(roles.values()), plan=plan, config=self._config(), **more
        )

    # --- sections -------------------------------------------------------------------------------------------------

    def _step(self, number: int, section: object, roles: dict[str, teams.RoleDefinition]) -> teams.TeamStep:
        where = f"steps[{number}]"
        said = dict(self._check_section(where, section, teams.TeamStep.__struct_fields__))
        role = said.pop("role", None)
        if role is not None and not (isinstance(role, str) and role in roles):
            raise ConfigurationError(f"{self._name}: {where}: there is no role {role!r}; write [[roles]] for it")
        return self._construct(where, teams.TeamStep, role=None if role is None else roles[role], **said)

    def _config(self) -> teams.TeamConfig:
        fields = tuple(field for field in teams.TeamConfig.__struct_fields__ if field != "resource_constraint")
        said = dict(self._check_section("config", self._data.get("config", {}), fields))
        for key, kind in _ENUMS.items():
            if key in said:
                said[key] = self._choice(f"config.{key}", said[key], kind)
        limits = dict(
            self._check_section("limits", self._data.get("limits", {}), teams.TeamResourceConstraint.__struct_fields__)
        )
        if isinstance(limits.get("max_cost"), float):
            limits["max_cost"] = str(limits["max_cost"])
        constraint = self._construct("limits", teams.TeamResourceConstraint, **limits)
        return self._construct("config", teams.TeamConfig, resource_constraint=constraint, **said)

    def _coordinator(self) -> teams.TeamCoordinator:
        kind = self._data.get("coordinator", "expert")
        if kind not in _COORDINATORS:
            raise ConfigurationError(f"{self._name}: coordinator must be expert or dispatch, not {kind!r:.80}")
        if kind == "dispatch":
            for key in ("planner", "judge", "senior", "rubric"):
                if key in self._data:
                    raise ConfigurationError(f"{self._name}: [{key}] has no effect with coordinator = 'dispatch'")
            return teams.DefaultTaskDispatchCoordinator()
        rubric = self._check_section(
            "rubric", self._data.get("rubric", {}), teams.SimpleEvaluationStrategy.__struct_fields__
        )
        judge = None
        if "judge" in self._data:
            said = self._check_section("judge", self._data["judge"], ("rubric", *_AGENT))
            agent, what_counts = self._agent("judge", said, "judge"), said.get("rubric", "")
            judge = self._construct("judge", teams.AgentEvaluationStrategy, agent=agent, rubric=what_counts)
        evaluator = self._construct("rubric", teams.SimpleEvaluationStrategy, **rubric)
        planner, senior = self._one("planner"), self._one("senior")
        return teams.ExpertTeamCoordinator(evaluator=evaluator, judge=judge, planner=planner, senior=senior)

    def _one(self, key: str) -> Agent | None:
        if key not in self._data:
            return None
        return self._agent(key, self._check_section(key, self._data[key], _AGENT), key)

    def _agent(self, where: str, said: dict[str, Any], name: str) -> Agent:
        file = self._agent_file(where, said)
        own = None if file is None else file.model
        model = said.get("model", own or self._data.get("model"))
        if not isinstance(model, str) or not model:
            raise ConfigurationError(f"{self._name}: {where}: no model is named: write model = ... here or at the top")
        known = {
            "tools": Known(self._names(where, said, "tools"), "file"),
            "approve": Known(self._approve, "flag --approve"),
            "sandbox": Known("auto", "file"),
            "store": Known(self._store, "flag --store"),
        }
        fields: dict[str, Any] = {
            key: said[key] for key in ("system_prompt", "max_output_tokens", "temperature") if key in said
        }
        turns = _TURNS if file is None or file.max_turns is None else file.max_turns
        limits = self._construct(where, Limits, max_iterations=said.get("max_turns", turns))
        tools = make_tools(LoadedSettings(known, self._path, found=False), self._world)
        fields |= {"model": make_model(model, self._world), "agent_name": name, "tools": tools, "limits": limits}
        return self._construct(where, Agent, **(fields if file is None else shape_fields(file, fields)))

    def _agent_file(self, where: str, said: dict[str, Any]) -> AgentFile | None:
        path = said.get("agent_file")
        if path is None:
            return None
        if not isinstance(path, str):
            raise ConfigurationError(f"{self._name}: {where}: agent_file must be a path, not {path!r:.80}")
        return AgentFile.read(self._path.parent / Path(path).expanduser())

    # --- checks ---------------------------------------------------------------------------------------------------

    def _list(self, key: str) -> list[Any]:
        found = self._data.get(key, [])
        if not isinstance(found, list):
            raise ConfigurationError(f"{self._name}: {key} must be a list: write [[{key}]]")
        return found

    def _names(self, where: str, said: dict[str, Any], key: str) -> tuple[str, ...]:
        """A list of names; a single str would be split into letters."""
        found = said.get(key, [])
        if not isinstance(found, list) or not all(isinstance(name, str) for name in found):
            raise ConfigurationError(f'{self._name}: {where}: {key} must be a list such as ["one"], not {found!r:.80}')
        return tuple(found)

    def _check_section(self, where: str, section: object, allowed: tuple[str, ...]) -> dict[str, Any]:
        if not isinstance(section, dict):
            raise ConfigurationError(f"{self._name}: {where} must be a section, not {section!r:.80}")
        for key in section:
            if key not in allowed:
                meant = find_closest(key, allowed)
                hint = f"; did you mean {meant!r}?" if meant else f"; there are {', '.join(allowed)}"
                raise ConfigurationError(f"{self._name}: {where}: there is no setting {key!r}{hint}")
        return section

    def _choice(self, where: str, value: object, kind: type[Enum]) -> Enum:
        names = [member.value for member in kind]
        if value not in names:
            raise ConfigurationError(f"{self._name}: {where} must be one of {', '.join(names)}; got {value!r:.80}")
        return kind(value)

    def _construct(self, where: str, kind: Callable[..., T], **fields: object) -> T:
        try:
            return kind(**fields)
        except (ConfigurationError, TypeError) as error:
            raise ConfigurationError(f"{self._name}: {where}: {error}") from None
