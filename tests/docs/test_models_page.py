"""The page about models tells the truth."""

import inspect

import pytest

from glidepath.models import AnthropicModel, GoogleModel, OpenAIChatModel, OpenAIResponsesModel
from glidepath.models.faults import Faults
from glidepath.models.strings import PROVIDERS

from .pages import ROOT, code, table

PAGE = ROOT / "docs" / "choosing-a-model.md"


def test_the_page_lists_every_provider_and_no_other():
    rows = table(PAGE, "string", "what it reaches", "extra", "key")
    assert {code(row[0]).partition(":")[0] for row in rows} == set(PROVIDERS)


def test_the_page_lists_every_option():
    listed = {code(row[0]) for row in table(PAGE, "option", "meaning")}
    models = (AnthropicModel, GoogleModel, OpenAIChatModel, OpenAIResponsesModel)
    taken = {name for model in models for name in inspect.signature(model).parameters}
    assert listed == taken - {"name"}


@pytest.mark.parametrize(("statuses", "kind"), table(PAGE, "status", "kind"))
def test_a_status_has_the_kind_the_page_says(statuses, kind):
    for status in statuses.split(", "):
        assert type(Faults("x", [], "").refusal(int(status), {})).__name__ == kind.split("`")[1]


@pytest.mark.parametrize(("word", "kind"), table(PAGE, "code or type", "kind"))
def test_a_code_has_the_kind_the_page_says(word, kind):
    assert type(Faults("x", [], "").refusal(400, {"error": {"code": code(word)}})).__name__ == code(kind)
