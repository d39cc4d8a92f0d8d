"""The page about models tells the truth."""

import inspect

import pytest

from glidepath.models import HOSTS, AnthropicModel, Faults, GoogleModel, OpenAIChatModel, OpenAIResponsesModel
from glidepath.models.formats import anthropic_messages, google_contents, responses
from glidepath.values import replace

from .pages import ROOT, code, table

PAGE = ROOT / "docs" / "choosing-a-model.md"


def test_the_page_lists_every_host_as_the_code_has_it():
    rows = table(PAGE, "string", "what it reaches", "extra", "key")
    made = [
        [
            f"`{host.name}:{host.form}`",
            host.reaches,
            f"`glidepath[{host.extra}]`",
            f"`{host.key}`" if host.key else "none",
        ]
        for host in HOSTS.values()
    ]
    assert [list(row) for row in rows] == made


def test_the_page_lists_every_address_and_variable_of_a_host():
    rows = {code(row[0]): row[1:] for row in table(PAGE, "host", "address", "also reads", "prices")}
    made = {
        host.name: [
            f"`{host.address}`" if host.address else "",
            ", ".join(f"`{name}`" for name in host.needs),
            f"`{host.prices}`" if host.prices else "",
        ]
        for host in HOSTS.values()
        if host.address or host.needs
    }
    assert {name: list(row) for name, row in rows.items()} == made


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


def _taken():
    """What the code takes, by the vendor's row."""
    rows = {
        "Anthropic": anthropic_messages.TAKES,
        "OpenAI Responses": responses._TAKES,
        "Gemini": google_contents._TAKES,
    }
    for row, name in (
        ("OpenAI chat, Azure", "openai-chat"),
        ("OpenAI chat, Azure", "azure"),
        ("OpenRouter", "openrouter"),
        ("vLLM", "vllm"),
        ("llama.cpp", "llamacpp"),
        ("Mistral", "mistral"),
        *[(_NONE, name) for name in ("groq", "deepseek", "xai", "ollama", "lmstudio", "bedrock")],
    ):
        yield row, replace(HOSTS[name].quirks.takes, vendor=name)
    yield from rows.items()


_NONE = "Groq, DeepSeek, xAI, Ollama, LM Studio, Bedrock without Claude"


@pytest.mark.parametrize(("row", "takes"), list(_taken()), ids=lambda value: getattr(value, "vendor", ""))
def test_the_page_tells_which_files_a_vendor_takes(row, takes):
    rows = {line[0]: line[1:] for line in table(PAGE, "vendor", "documents", "audio", "video", "by address")}
    told = [cell != "no" for cell in rows[row][:3]]
    assert told == [bool(takes.document), bool(takes.audio), bool(takes.video)]
