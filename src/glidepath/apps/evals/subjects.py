"""What is evaluated: an agent, or anything else that answers a case. One object, one method."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

from glidepath._wire import Record
from glidepath.agent import Agent, Budget, Limits, LoopConfig
from glidepath.apps.evals.cases import Case
from glidepath.run import CancelToken
from glidepath.run.fingerprint import fingerprint
from glidepath.spi import SessionStore
from glidepath.values import ConfigurationError, RunResult, describe_error, short_repr


class Errand(Record, kw_only=True):
    """What one run of a case gets: where it is kept, what pays for it, and what stops it."""

    session_id: str | None = None
    begun: bool = False
    """True when an earlier part of the evaluation has begun this run: continue it."""
    budget: Budget | None = None
    cancel: CancelToken | None = None


class Subject(Protocol):
    """Answers cases.

    Contract of `answer(case, errand)`: it returns a `RunResult` for everything that can happen; it spends from
    `errand.budget` and stops when `errand.cancel` says so; with a session id the run is kept there, and `begun` asks
    to continue the one that is. It may raise `ConfigurationError` and `StoreError`: the case is not covered then.
    """

    name: str
    fingerprint: str
    """Changes with what is evaluated: an evaluation does not continue with another agent."""

    async def answer(self, case: Case, errand: Errand) -> RunResult[Any]:
        """Run the case."""
        ...

    def limit_of(self, case: Case) -> Limits:
        """The limits that a run of this case has of its own: reaching one of them is the agent's own failure."""
        ...


Answering: TypeAlias = "Agent | LoopConfig | Subject | Callable[[Case], Agent]"


class AgentSubject:
    """An agent of ours, or a function that makes one for each case."""

    def __init__(
        self,
        agent: Agent | None,
        make: Callable[[Case], Agent] | None,
        *,
        store: SessionStore | None,
        limits: Limits | None = None,
        deps: object = None,
    ) -> None:
        self._agent = None if agent is None else _keep_in(agent, store)
        self._make = make
        self._store = store
        self._limits, self._deps = limits, deps
        self.name = agent.config.agent_name if agent is not None else getattr(make, "__name__", "agent")
        self.fingerprint = "" if agent is None else fingerprint(agent._plan)[1]  # noqa: SLF001 - the agent's own digest

    async def answer(self, case: Case, errand: Errand) -> RunResult[Any]:
        """Run the case, or continue it."""
        agent = self.agent_for(case)
        options: dict[str, Any] = {"parent": errand.budget, "cancel": errand.cancel}
        if self._limits is not None:
            options["limits"] = self._limits
        if self._deps is not None:
            options["deps"] = self._deps
        if errand.begun and errand.session_id is not None:
            return await agent.resume(errand.session_id, **options)
        return await agent.run(case.prompt, session=errand.session_id, **options)

    def limit_of(self, case: Case) -> Limits:
        """The limits that a run of this case has of its own."""
        if self._limits is not None:
            return self._limits
        return self.agent_for(case).config.limits

    def agent_for(self, case: Case) -> Agent:
        """The agent that runs this case."""
        agent = self._agent if self._agent is not None else self._ask(self.name, self._make, case)
        return agent if case.agent is None else self._ask("Case.agent", case.agent, agent)

    def _ask(self, what: str, make: Callable[[Any], Agent] | None, given: object) -> Agent:
        assert make is not None  # noqa: S101 - there is an agent, or a function that makes one
        try:
            made = make(given)
        except ConfigurationError:
            raise
        except Exception as error:  # the bug of one case must not end the evaluation of the others
            raise ConfigurationError(f"{what} raised {describe_error(error)}") from error
        if isinstance(made, Agent):
            return _keep_in(made, self._store)
        raise ConfigurationError(f"{what} must return an Agent, not {short_repr(made, 80)}")


def _keep_in(agent: Agent, store: SessionStore | None) -> Agent:
    """The agent, with its sessions in this store."""
    return agent if agent.config.store is store else agent.replace(store=store)


def as_subject(given: object, *, store: SessionStore | None, limits: Limits | None, deps: object) -> Subject:
    """What answers cases; raises `ConfigurationError` for what cannot."""
    if isinstance(given, LoopConfig):
        given = Agent(given)
    if isinstance(given, Agent):
        return AgentSubject(given, None, store=store, limits=limits, deps=deps)
    if callable(getattr(given, "answer", None)):
        return given  # type: ignore[return-value]
    if callable(given) and not isinstance(given, type):
        return AgentSubject(None, given, store=store, limits=limits, deps=deps)
    raise ConfigurationError(
        "the agent under test must be an Agent, a LoopConfig, or a function that makes one, not "
        f"{short_repr(given, 80)}"
    )
