"""Errors cross process borders and are copied: a pool that cannot read one is broken for every later job."""

import copy
import importlib
import inspect
import multiprocessing
import pickle
import pkgutil
from concurrent.futures import ProcessPoolExecutor

import pytest

import glidepath
from glidepath import Agent, Limits
from glidepath.errors import GlidepathError, RejectedError, RunInterrupted, RunNotCompleted
from glidepath.outcome import AgentState, StopCause
from glidepath.testing import ScriptedModel, fail, say
from glidepath.values import Verdict

LATE = ("glidepath.conformance", "glidepath.engines", "glidepath.serve", "glidepath.cli", "glidepath.models.local")
WAYS = {"copy": copy.copy, "deepcopy": copy.deepcopy, "pickle": lambda error: pickle.loads(pickle.dumps(error))}


def ended(*turns):
    return Agent(model=ScriptedModel(turns), limits=Limits(max_iterations=2)).run_sync("go")


def all_errors():
    """Every error class of the package that is made of a text and keywords."""
    for found in pkgutil.walk_packages(glidepath.__path__, "glidepath."):
        if not found.name.startswith(LATE) and "__main__" not in found.name:
            importlib.import_module(found.name)
    waiting, known = [GlidepathError], []
    while waiting:
        kind = waiting.pop()
        known.append(kind)
        waiting += kind.__subclasses__()
    return sorted(set(known), key=lambda kind: kind.__qualname__)


def made(kind):
    cause = StopCause(source="s", action="a", reason="r")
    verdict = Verdict(state=AgentState.ERROR, cause=cause)
    values = {"result": ended(say("text")), "verdict": verdict, "status": 404, "calls": (), "state": "", "form": {}}
    own = [] if kind.__init__ is Exception.__init__ else [*inspect.signature(kind.__init__).parameters.values()][1:]
    given = {one.name: values.get(one.name, one.name) for one in own if one.kind is one.KEYWORD_ONLY}
    places = [values.get(one.name, one.name) for one in own if one.kind is one.POSITIONAL_OR_KEYWORD]
    return kind(*(places or ["text"]), **given)


@pytest.mark.parametrize("way", WAYS)
def test_every_error_travels_with_its_text_and_its_fields(way):
    for kind in (*all_errors(), RunInterrupted):
        error = made(kind)
        error.add_note("a note")
        again = WAYS[way](error)
        assert (type(again), str(again), vars(again)) == (kind, str(error), vars(error)), kind


def job(number):
    return ended(fail(RejectedError("no")) if number % 2 else say(str(number))).unwrap()


def test_a_process_pool_survives_an_unwrap_that_raises():
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        found = [pool.submit(job, number) for number in range(4)]
        assert [type(one.exception(timeout=60)) for one in found] == [type(None), RunNotCompleted] * 2
        assert found[1].exception().result.cause.source == "provider"
