"""The embedded model is offered only what it can do."""

import shlex

import pytest

from glidepath.models import pull

from .shell_user import glidepath

LOCAL = ("config", "check", "--model", "local:smollm2")


@pytest.fixture(scope="module", autouse=True)
def weights():
    """A machine that has never run the embedded model has no weights yet."""
    return pull("smollm2")


@pytest.mark.parametrize("tools", ["read,list", "shell", "write", "edit"])
def test_more_than_one_simple_tool_needs_a_yes(tmp_path, tools):
    refused = glidepath(*LOCAL, "--tools", tools, folder=tmp_path)
    assert refused.code == 2
    assert "Pass --overload" in refused.err
    assert glidepath(*LOCAL, "--tools", tools, "--overload", folder=tmp_path).code == 0


def test_without_being_asked_for_it_gets_no_tools_and_says_so(tmp_path):
    ran = glidepath(*LOCAL, folder=tmp_path)
    assert ran.code == 0, ran
    assert "gets no tools" in ran.err
    assert "tools" not in ran.out
    one = glidepath(*LOCAL, "--tools", "list", folder=tmp_path)
    assert (one.code, one.err) == (0, "")


def test_a_money_limit_on_a_free_model_is_explained_with_flags_that_work(tmp_path):
    refused = glidepath(*LOCAL, "--max-budget-usd", "1", folder=tmp_path)
    free = """--set 'prices={"local:smollm2": ["0", "0"]}'"""
    assert (refused.code, free in refused.err, "remove --max-budget-usd" in refused.err) == (2, True, True), refused
    assert "max_cost" not in refused.err
    assert glidepath(*LOCAL, "--max-budget-usd", "1", *shlex.split(free), folder=tmp_path).code == 0
