"""Model strings: what they make, and what is said when they cannot."""

import re
import subprocess
import sys

import pytest

from glidepath import Agent, ConfigurationError, Limits, LoopConfig
from glidepath.models import AnthropicModel, GoogleModel, LocalModel, OpenAIChatModel, OpenAIResponsesModel, resolve
from glidepath.values import install_line

KEYS = {"OPENAI_API_KEY": "sk-o", "ANTHROPIC_API_KEY": "sk-a", "GEMINI_API_KEY": "g"}


@pytest.fixture
def keys(monkeypatch):
    monkeypatch.delenv("GOOGLE_API_KEY", raising=False)
    for name, value in KEYS.items():
        monkeypatch.setenv(name, f"{value}-0123456789")


@pytest.mark.usefixtures("keys")
@pytest.mark.parametrize(
    ("string", "kind", "name"),
    [
        ("openai:gpt-5", OpenAIResponsesModel, "gpt-5"),
        ("openai-responses:gpt-5", OpenAIResponsesModel, "gpt-5"),
        ("openai-chat:gpt-4o", OpenAIChatModel, "gpt-4o"),
        ("anthropic:claude-sonnet-4-5", AnthropicModel, "claude-sonnet-4-5"),
        ("google:gemini-2.5-flash", GoogleModel, "gemini-2.5-flash"),
        ("openai-compatible:qwen3:8b@http://localhost:11434/v1", OpenAIChatModel, "qwen3:8b"),
        (" Anthropic:claude-sonnet-4-5 ", AnthropicModel, "claude-sonnet-4-5"),
    ],
)
def test_a_string_makes_its_model(string, kind, name):
    model = resolve(string)
    assert type(model) is kind
    assert model.name == name
    assert repr(model) == f"{kind.__name__}({name!r})"


@pytest.mark.usefixtures("keys")
def test_an_agent_resolves_strings_and_keeps_a_model_in_its_configuration():
    agent = Agent(model="anthropic:claude-sonnet-4-5", limits=Limits(max_iterations=3))
    assert type(agent.config.model) is AnthropicModel
    config = LoopConfig(model="openai:gpt-5", limits=Limits(max_iterations=3))
    assert type(Agent(config).config.model) is OpenAIResponsesModel


@pytest.mark.usefixtures("keys")
def test_two_calls_make_two_models():
    assert resolve("openai:gpt-5") is not resolve("openai:gpt-5")


@pytest.mark.parametrize(
    ("string", "said"),
    [
        ("antropic:claude", "did you mean 'anthropic'"),
        ("gemini:pro", "the providers are anthropic, azure"),
        ("gpt-5", "did you mean 'openai:gpt-5'"),
        ("claude-sonnet-4-5", "did you mean 'anthropic:claude-sonnet-4-5'"),
        ("nothing", "provider:name"),
        ("", "provider:name"),
        ("openai:", "provider:name"),
        (":x", "there is no provider"),
        ("openai-compatible:qwen3", "NAME@ADDRESS"),
        ("openai-compatible:qwen3@localhost", "NAME@ADDRESS"),
        ("openai-compatible:@http://x", "NAME@ADDRESS"),
        ("openai-compatible:m@http://", "base_url"),
        ("anthropic:a\0b", "printable"),
        ("openai-compatible:m@http://localhost:99999/v1", "base_url"),
        ("openai-compatible:m@http://[::1/v1", "base_url"),
        ("grok:chat", "did you mean 'xai'"),
        ("ollama:@http://box/v1", "needs a name before the address"),
        ("gemini:pro", "did you mean 'google'"),
        ("openai/gpt-5", "did you mean 'openai:gpt-5'"),
    ],
)
def test_a_wrong_string_says_what_to_write(string, said):
    with pytest.raises(ConfigurationError) as caught:
        Agent(model=string, limits=Limits(max_iterations=1))
    assert said in str(caught.value)
    assert "model" in str(caught.value)


@pytest.mark.parametrize("string", [None, 7, b"openai:gpt-5", ["openai:gpt-5"]])
def test_what_is_no_string_is_refused(string):
    with pytest.raises(ConfigurationError, match="must be a str"):
        resolve(string)


def test_a_password_in_an_address_is_refused_and_not_shown():
    with pytest.raises(ConfigurationError) as caught:
        resolve("openai-compatible:m@http://me:hunter22@host/v1")
    assert "hunter22" not in str(caught.value)


@pytest.mark.parametrize("provider", ["openai", "openai-chat", "anthropic", "google"])
def test_a_missing_extra_says_how_to_install_it(provider, monkeypatch):
    package = {"google": "google.genai", "anthropic": "anthropic"}.get(provider, "openai")
    monkeypatch.setitem(sys.modules, package, None)
    if provider == "google":
        import google

        monkeypatch.delattr(google, "genai", raising=False)
    extra = provider.partition("-")[0]
    with pytest.raises(ConfigurationError, match=re.escape(install_line(extra))):
        resolve(f"{provider}:some-model")


@pytest.mark.usefixtures("keys")
def test_prices_and_windows_are_found_by_the_name():
    agent = Agent(model="anthropic:claude-sonnet-4-5", limits=Limits(max_cost="1"))
    assert agent._plan.price.input == 3_000_000
    assert agent._plan.context_window == 200_000
    assert agent._plan.max_output_tokens is None  # a cap nobody asked for is only reserved
    assert agent._plan.first_output_tokens == 64_000
    stand_in = Agent(
        model="openai-compatible:mine@http://localhost:1/v1",
        limits=Limits(max_cost="1"),
        unpriced="estimate:anthropic:claude-sonnet-4-5",
    )
    assert stand_in._plan.price == agent._plan.price


@pytest.mark.usefixtures("keys")
def test_a_price_of_two_figures_counts_what_anthropics_cache_costs_more():
    for name in ("claude-sonnet-4-5", "anthropic:claude-sonnet-4-5"):
        agent = Agent(model="anthropic:claude-sonnet-4-5", limits=Limits(max_cost="1"), prices={name: (3, 15)})
        assert agent._plan.price.cache_write == 3_750_000
    plain = AnthropicModel("claude-sonnet-4-5", cache=False)
    agent = Agent(model=plain, limits=Limits(max_cost="1"), prices={"claude-sonnet-4-5": (3, 15)})
    assert agent._plan.price.cache_write is None


GATEWAY = "http://127.0.0.1:1/v1"


@pytest.mark.usefixtures("keys")
def test_a_vendors_own_reports_are_its_bill_and_nobody_elses_are():
    vendors = ("openai:gpt-5", "openai-chat:gpt-4o", "anthropic:claude-sonnet-4-5", "google:gemini-2.5-flash")
    assert [Agent(model=name, limits=Limits(max_iterations=1))._plan.usage_is_billed for name in vendors] == [True] * 4
    others = [
        resolve(f"openai-compatible:gpt-4o@{GATEWAY}"),
        OpenAIResponsesModel("gpt-5", base_url="https://api.openai.com.example.org/v1"),
        AnthropicModel("claude-sonnet-4-5", base_url=GATEWAY),
        GoogleModel("gemini-2.5-flash", base_url="https://evilgoogleapis.com"),
    ]
    assert [model.usage_is_billed for model in others] == [False] * 4
    assert LocalModel.usage_is_billed is True


@pytest.mark.usefixtures("keys")
def test_a_gateway_that_the_environment_names_is_not_the_vendor(monkeypatch):
    monkeypatch.setenv("ANTHROPIC_BASE_URL", GATEWAY)
    monkeypatch.setenv("OPENAI_BASE_URL", GATEWAY)
    assert not resolve("anthropic:claude-sonnet-4-5").usage_is_billed
    assert not resolve("openai:gpt-5").usage_is_billed


def test_no_sdk_is_imported_before_a_string_is_resolved():
    code = (
        "import sys, glidepath, glidepath.models\n"
        "from glidepath import Agent\n"
        "bad = {'openai', 'anthropic', 'google.genai', 'httpx2', 'pydantic', 'genai_prices'} & set(sys.modules)\n"
        "raise SystemExit(str(bad) if bad else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
