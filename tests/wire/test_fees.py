"""What providers charge beside tokens: searches of the web that a vendor reports are part of a run's cost."""

from decimal import Decimal

import pytest

from glidepath import Agent, ConfigurationError, Limits
from glidepath.agent import find_price
from glidepath.messages import ReplyInfo, StreamEnd, TextDelta, Usage
from glidepath.models import AnthropicModel, OpenAIResponsesModel
from glidepath.run import Price
from glidepath.testing import virtual

from .dialects import KEY, Anthropic, Chat, Google, Responses, event
from .server import Answer, Wire, run

DEAR = ("0", "0", "0", "0", "10")  # only searches cost anything: ten dollars for a thousand


def anthropic():
    dialect = Anthropic()
    used = {"output_tokens": 12, "server_tool_use": {"web_search_requests": 3, "web_fetch_requests": 2}}
    end = [dialect.say("message_delta", delta={"stop_reason": "end_turn"}, usage=used), dialect.say("message_stop")]
    return dialect, [*dialect.text("Found."), *end]


def responses():
    dialect = Responses()
    kinds = ["search", "open_page", "search", None, "find_in_page"]
    items = [
        {
            "type": "web_search_call",
            "id": f"ws_{n}",
            "status": "completed",
            **({"action": {"type": kind}} if kind else {}),
        }
        for n, kind in enumerate(kinds)
    ]
    done = [dialect.say("response.output_item.done", output_index=n + 1, item=item) for n, item in enumerate(items)]
    return dialect, [*dialect.text("Found."), *done, *dialect.end()]


def openrouter():
    dialect = Chat()
    used = {"prompt_tokens": 40, "completion_tokens": 12, "server_tool_use": {"web_search_requests": 3}}
    stop = dialect.chunk({}, "stop")
    return dialect, [*dialect.text("Found."), stop, event({"id": "c", "choices": [], "usage": used}), event("[DONE]")]


def google():
    dialect = Google()
    grounds = {"webSearchQueries": ["a", "b", "c"]}
    return dialect, [dialect.chunk({"text": "Found."}, groundingMetadata=grounds), *dialect.end()]


def flown(make, **settings):
    dialect, chunks = make()

    async def fly():
        async with Wire([Answer(chunks)]) as wire:
            model = dialect.model(wire.url)
            agent = Agent(model=model, limits=Limits(max_iterations=3), **settings)
            result = await agent.run("Search.")
            await model.aclose()
            return result

    return run(fly)


@pytest.mark.parametrize("make", [anthropic, responses, openrouter, google])
def test_searches_that_the_vendor_reports_are_in_the_reply_and_in_the_cost(make):
    dialect, _ = make()
    name = dialect.model("http://127.0.0.1:1").name
    result = flown(make, prices={name: DEAR})
    assert result.text == "Found."
    assert result.messages[-1].info.web_searches == 3
    assert result.cost == Decimal("0.03")


def test_an_older_gemini_bills_a_prompt_once():
    from glidepath.models import GoogleModel

    class Older(Google):
        def model(self, url, **keywords):
            return GoogleModel("gemini-2.5-flash", base_url=url, api_key=KEY)

    result = flown(lambda: (Older(), google()[1]), prices={"gemini-2.5-flash": DEAR})
    assert (result.messages[-1].info.web_searches, result.cost) == (1, Decimal("0.01"))


@pytest.mark.parametrize("searches", [-1, 10**9, True, "3", 2.5, None])
@virtual
async def test_a_count_that_cannot_be_true_costs_nothing(searches):
    class Odd:
        name = "odd"

        async def stream(self, _request):
            yield TextDelta("ok")
            yield StreamEnd("end_turn", Usage(10, 1), ReplyInfo(web_searches=searches))

    result = await Agent(model=Odd(), limits=Limits(max_iterations=2), prices={"odd": DEAR}).run("go")
    assert (result.text, result.cost) in [("ok", None), ("ok", Decimal(0))]


def test_known_models_have_a_price_for_searches():
    agent = Agent(model=AnthropicModel("claude-sonnet-4-5", api_key=KEY), limits=Limits(max_cost="1"))
    assert find_price(agent.config, agent.config.model, needed=True).web_search == 10**12 // 100
    agent = Agent(model=OpenAIResponsesModel("gpt-5", api_key=KEY), limits=Limits(max_cost="1"))
    assert find_price(agent.config, agent.config.model, needed=True).web_search > 0


def test_a_price_has_two_four_or_five_figures():
    assert Price.per_million((3, 15), field="p").web_search == 0
    assert Price.per_million((3, 15, None, None, 10), field="p").web_search == 10**10
    assert Price.per_million((3, 15, None, None, None), field="p").web_search == 0
    for wrong in ((3,), (3, 15, 1), (3, 15, 1, 1, 1, 1), (3, 15, None, None, -1)):
        with pytest.raises(ConfigurationError, match="p must be"):
            Price.per_million(wrong, field="p")
