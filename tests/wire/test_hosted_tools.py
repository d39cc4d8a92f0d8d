"""Tools that run at the provider: what each vendor is sent, who has none, and what they cost."""

from decimal import Decimal

import pytest

from glidepath import Agent, ConfigurationError, Limits, Rules, tool
from glidepath.messages import UserMessage
from glidepath.models import (
    AnthropicModel,
    CodeExecution,
    GoogleModel,
    ModelRequest,
    OpenAIChatModel,
    OpenAIResponsesModel,
    WebFetch,
    WebSearch,
)
from glidepath.run import Price

from .dialects import Anthropic, Google, Responses
from .server import Answer, Wire, run

CLAUDE = AnthropicModel("claude-opus-4-8", api_key="key")
GPT = OpenAIResponsesModel("gpt-5", api_key="key")
GEMINI = GoogleModel("gemini-3-pro", api_key="key")


def body_of(model, *hosted, usable=True):
    usable = hosted if usable else ()
    asked = ModelRequest(messages=(UserMessage("Hi."),), hosted_tools=usable, defined_hosted_tools=hosted)
    return model._body(asked)


def write(text: str) -> str:
    """Write it down."""
    return text


@tool
def note(text: str) -> str:
    """Write it down."""
    return text


def test_anthropic_is_sent_its_own_forms_with_the_limits_that_are_reserved_for():
    page = WebFetch(max_uses=2, blocked_domains=["bad.example"], max_content_tokens=900)
    sent = body_of(CLAUDE, WebSearch(allowed_domains=("example.com",)), page, CodeExecution())["tools"]
    assert sent[0] == {
        "type": "web_search_20250305",
        "name": "web_search",
        "max_uses": 5,
        "allowed_domains": ["example.com"],
    }
    assert sent[1] == {
        "type": "web_fetch_20250910",
        "name": "web_fetch",
        "max_uses": 2,
        "max_content_tokens": 900,
        "blocked_domains": ["bad.example"],
    }
    assert sent[2]["type"] == "code_execution_20250825"


def test_openai_is_sent_its_own_forms_and_one_limit_for_all():
    sent = body_of(GPT, WebSearch(max_uses=3, allowed_domains=("example.com",)), CodeExecution())
    assert sent["tools"] == [
        {"type": "web_search", "filters": {"allowed_domains": ["example.com"]}},
        {"type": "code_interpreter", "container": {"type": "auto"}},
    ]
    assert sent["max_tool_calls"] == 8
    assert sent["tool_choice"] == "auto"


def test_gemini_is_sent_its_own_forms():
    assert body_of(GEMINI, WebSearch(), WebFetch(), CodeExecution())["tools"] == [
        {"googleSearch": {}},
        {"urlContext": {}},
        {"codeExecution": {}},
    ]


def test_beside_functions_gemini_3_is_told_to_combine_them():
    asked = ModelRequest(
        messages=(UserMessage("Hi."),),
        tools=(note.spec,),
        hosted_tools=(WebSearch(),),
        defined_hosted_tools=(WebSearch(),),
    )
    sent = GEMINI._body(asked)
    assert [list(one) for one in sent["tools"]] == [["functionDeclarations"], ["googleSearch"]]
    assert sent["toolConfig"]["includeServerSideToolInvocations"] is True


@pytest.mark.parametrize("model", [CLAUDE, GPT])
def test_a_landing_keeps_the_definitions_and_forbids_their_use(model):
    sent = body_of(model, WebSearch(), usable=False)
    assert len(sent["tools"]) == 1
    assert sent["tool_choice"] in ("none", {"type": "none"})


def test_a_landing_leaves_them_out_where_no_choice_holds_for_them():
    assert "tools" not in body_of(GEMINI, WebSearch(), usable=False)


@pytest.mark.parametrize(
    ("model", "hosted", "why"),
    [
        (OpenAIChatModel("gpt-5", api_key="key"), WebSearch(), "chat completions have none; use openai:gpt-5"),
        (GPT, WebFetch(), "WebSearch opens the pages it finds"),
        (GPT, WebSearch(blocked_domains=("a.example",)), "allowed_domains only"),
        (GEMINI, WebSearch(max_uses=3), r"pass WebSearch\(\) without it"),
        (GEMINI, WebSearch(allowed_domains=("a.example",)), "domains"),
        (GoogleModel("gemini-1.5-pro", api_key="key"), WebSearch(), "older than that tool"),
        (AnthropicModel("claude-3-haiku-20240307", api_key="key"), WebSearch(), "older than the tools"),
    ],
)
def test_a_model_without_the_tool_is_refused_before_the_first_call(model, hosted, why):
    with pytest.raises(ConfigurationError, match=f"cannot offer {hosted.NAME}: .*{why}"):
        Agent(model=model, tools=[hosted])


GATE = "http://127.0.0.1:7/run-1"


@pytest.mark.parametrize("how", ["environment", "argument"])
@pytest.mark.parametrize(
    ("vendors", "address", "works"),
    [
        ("anthropic,openai", f"{GATE}/v1", True),
        ("anthropic", f"{GATE}/v1", False),  # OpenAI's calls go elsewhere behind it
        ("", f"{GATE}/v1", False),
        ("openai", "http://127.0.0.1:8/v1", False),  # another server
        (None, f"{GATE}/v1", False),
    ],
    ids=["openai behind it", "another behind it", "nobody's own", "another address", "not told"],
)
def test_behind_a_gate_of_ours_openai_has_its_tools_where_it_is_openai_that_answers(
    monkeypatch, vendors, address, works, how
):
    monkeypatch.setenv("GLIDEPATH_GATE_URL", GATE)
    if vendors is not None:
        monkeypatch.setenv("GLIDEPATH_GATE_VENDORS", vendors)
    monkeypatch.setenv("OPENAI_API_KEY", "gate-key")
    if how == "environment":
        monkeypatch.setenv("OPENAI_BASE_URL", address)
    model = OpenAIResponsesModel("gpt-5", **({} if how == "environment" else {"base_url": address, "api_key": "k"}))
    if works:
        assert Agent(model=model, tools=[WebSearch()]).config.hosted_tools == (WebSearch(),)
    else:
        with pytest.raises(ConfigurationError, match="GLIDEPATH_GATE_VENDORS=openai if it is a gate"):
            Agent(model=model, tools=[WebSearch()])


def test_claude_has_its_tools_behind_any_address(monkeypatch):
    monkeypatch.setenv("ANTHROPIC_BASE_URL", GATE)
    Agent(model=AnthropicModel("claude-opus-4-8", api_key="key"), tools=[WebSearch(), WebFetch()])


def test_a_fallback_needs_the_tool_as_well_and_older_geminis_take_no_functions_beside_it():
    with pytest.raises(ConfigurationError, match=r"fallback_models\[0\]='gpt-5' cannot offer web_search"):
        Agent(model=CLAUDE, fallback_models=[OpenAIChatModel("gpt-5", api_key="key")], tools=[WebSearch()])
    older = GoogleModel("gemini-2.5-pro", api_key="key")
    assert Agent(model=older, tools=[WebSearch()]).config.hosted_tools == (WebSearch(),)
    with pytest.raises(ConfigurationError, match="before Gemini 3 a request has either"):
        Agent(model=older, tools=[WebSearch(), note])


def test_a_model_of_ones_own_offers_none_unless_it_says_so():
    class Own:
        name = "own"

        async def stream(self, request):
            yield

    with pytest.raises(ConfigurationError, match="its adapter knows no hosted tools"):
        Agent(model=Own(), tools=[WebSearch()])


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: WebSearch(max_uses="5"), r"WebSearch.max_uses must be a whole number from 1 to 1000, not '5'"),
        (lambda: WebSearch(max_uses=0), "max_uses must be"),
        (lambda: WebSearch(max_uses=True), "max_uses must be"),
        (lambda: WebFetch(max_content_tokens=-1), "max_content_tokens must be"),
        (lambda: WebSearch(allowed_domains="a.example"), "must be a list of domains"),
        (lambda: WebSearch(allowed_domains=[]), "an empty list, which allows nothing: leave the tool out"),
        (lambda: WebSearch(allowed_domains=["https://a.example"]), "which is not a domain"),
        (lambda: WebSearch(allowed_domains=["a"], blocked_domains=["b"]), "remove one"),
        (lambda: Agent(model=CLAUDE, tools=[WebSearch]), r"write WebSearch\(\)"),
        (lambda: Agent(model=CLAUDE, tools=[WebSearch(), WebSearch(max_uses=2)]), "two hosted tools 'web_search'"),
        (lambda: Agent(model=CLAUDE, hosted_tools={"web_serch": {}}), "did you mean 'web_search'"),
        (lambda: Agent(model=CLAUDE, hosted_tools={"web_search": {"uses": 1}}), "has no option 'uses'"),
        (lambda: Agent(model=CLAUDE, hosted_tools={"web_search": 3}), "must be a table of options"),
        (lambda: Agent(model=CLAUDE, hosted_tools=7), "must be a list such as"),
        (
            lambda: Agent(model=CLAUDE, tools=[WebSearch(), tool(write, name="web_search")]),
            "name of a hosted tool",
        ),
    ],
)
def test_what_is_wrong_is_named(make, why):
    with pytest.raises(ConfigurationError, match=why):
        make()


def test_a_file_names_them_in_a_table():
    agent = Agent(model=CLAUDE, hosted_tools={"web_search": {"max_uses": 2}, "code_execution": {}})
    assert agent.config.hosted_tools == (WebSearch(max_uses=2), CodeExecution())


def fly(dialect, chunks, **settings):
    async def in_flight():
        async with Wire([Answer(chunks)]) as wire:
            model = dialect.model(wire.url)
            result = await Agent(model=model, limits=Limits(max_iterations=3), **settings).run("Search.")
            await model.aclose()
            return result

    return run(in_flight)


def test_what_the_provider_has_read_is_untrusted():
    dialect = Anthropic()
    found = dialect.block(1, {"type": "web_search_tool_result", "tool_use_id": "s", "content": []})
    claude = fly(dialect, [*dialect.text("Found."), *found, *dialect.end()])
    assert claude.messages[-1].origins == ("web_search",)
    dialect = Responses()
    item = {"type": "web_search_call", "id": "ws", "status": "completed", "action": {"type": "search"}}
    done = dialect.say("response.output_item.done", output_index=1, item=item)
    assert fly(dialect, [*dialect.text("Found."), done, *dialect.end()]).messages[-1].origins == ("web_search",)
    dialect = Google()
    chunk = dialect.chunk({"text": "Found."}, groundingMetadata={"webSearchQueries": ["a"]})
    assert fly(dialect, [chunk, *dialect.end()]).messages[-1].origins == ("web_search",)


def test_a_container_is_charged():
    dialect = Responses()
    item = {"type": "code_interpreter_call", "id": "ci", "status": "completed", "code": "1", "container_id": "c"}
    done = dialect.say("response.output_item.done", output_index=1, item=item)
    name = dialect.model("http://127.0.0.1:1").name
    price = Price(0, 0, code_session=30 * 10**9)
    result = fly(dialect, [*dialect.text("Done."), done, *dialect.end()], prices={name: price})
    assert result.messages[-1].info.code_sessions == 1
    assert result.cost == Decimal("0.03")


@pytest.mark.parametrize("rules", [{"deny": ["web_search"]}, {"ask": ["web_*"]}])
def test_a_rule_that_could_not_hold_them_is_refused(rules):
    with pytest.raises(ConfigurationError, match="cannot hold web_search, which runs at the provider"):
        Agent(model=CLAUDE, tools=[WebSearch()], approvals=Rules(**rules))
    Agent(model=CLAUDE, tools=[WebSearch()], approvals=Rules(allow=["web_search"], deny=["other"]))
