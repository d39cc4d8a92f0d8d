"""What a function becomes when it is made a tool, and which options are refused."""

import asyncio
import functools
import math

import pytest

from glidepath.errors import ConfigurationError, ToolError
from glidepath.tools import Tool, ToolContext, tool


@tool
async def search(query: str, page: int = 1) -> str:
    """Search the handbook."""
    return f"{query}:{page}"


@tool(name="adder", read_only=True, timeout=2.5)
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def invoke(made, **arguments):
    async def call():
        return await made.invoke(made.bind(arguments).values, ToolContext.for_testing())

    return asyncio.run(call())


def test_a_bare_decorator_takes_name_and_description_from_the_function():
    assert (search.name, search.description) == ("search", "Search the handbook.")


def test_options_become_attributes():
    assert (add.name, add.read_only, add.timeout, add.exclusive) == ("adder", True, 2.5, False)


def test_options_have_the_documented_defaults():
    assert {name: getattr(search, name) for name in ("counts_toward_limit", "votes_on_termination")} == {
        "counts_toward_limit": True,
        "votes_on_termination": True,
    }
    off = ["exclusive", "parallel_safe", "terminal", "idempotent", "read_only", "polling", "requires_approval"]
    assert not any(getattr(search, name) for name in [*off, "aborts_siblings_on_error"])
    assert search.timeout is None
    assert search.max_result_chars is None


def test_async_functions_run_inline_and_plain_ones_on_a_thread():
    assert (search.isolation, add.isolation) == ("inline", "thread")


def test_the_spec_is_what_the_model_sees():
    assert (search.spec.name, search.spec.description) == (search.name, search.description)
    assert search.spec.parameters is search.parameters


def test_calling_a_tool_calls_its_plain_function():
    assert add(1, b=2) == 3
    assert asyncio.run(search("leave", page=2)) == "leave:2"


def test_a_tool_looks_like_its_function():
    assert (search.__name__, search.__doc__, search.__module__) == ("search", "Search the handbook.", __name__)


def test_a_tool_cannot_be_changed():
    with pytest.raises(AttributeError, match="immutable"):
        search.name = "other"
    with pytest.raises(AttributeError, match="immutable"):
        del search.name


def test_an_inline_async_tool_gives_its_own_coroutine():
    coroutine = search.invoke({"query": "x"})
    assert coroutine.cr_code is search.fn.__code__
    coroutine.close()


def test_a_tool_of_a_tool_is_the_same_tool():
    assert tool(search) is search


def test_options_for_an_existing_tool_are_refused():
    with pytest.raises(ConfigurationError, match="already"):
        tool(search, timeout=3)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"time_out": 3}, "did you mean 'timeout'"),
        ({"zzz": 3}, "the options are"),
        ({"timeout": 0}, "timeout must .*greater than 0"),
        ({"timeout": -1}, "timeout"),
        ({"timeout": math.nan}, "timeout"),
        ({"timeout": math.inf}, "timeout"),
        ({"timeout": True}, "timeout"),
        ({"timeout": "3"}, "timeout"),
        ({"name": ""}, "name: .*1 to 128"),
        ({"name": "a" * 129}, "name"),
        ({"name": "has space"}, "name"),
        ({"name": "nul\0"}, "name"),
        ({"name": "line\n"}, "name"),
        ({"name": 3}, "name"),
        ({"description": 3}, "description"),
        ({"description": "\ud800"}, "description"),
        ({"exclusive": 1}, "exclusive: expected True or False"),
        ({"requires_approval": None}, "requires_approval"),
        ({"max_result_chars": 0}, "max_result_chars"),
        ({"max_result_chars": True}, "max_result_chars"),
        ({"max_result_chars": 1.5}, "max_result_chars"),
        ({"isolation": "fork"}, "isolation: expected one of inline, thread, process"),
        ({"isolation": []}, "isolation"),
    ],
)
def test_a_wrong_option_is_refused_by_name_where_it_is_written(options, says):
    with pytest.raises(ConfigurationError, match=says):
        tool(**options)


@pytest.mark.parametrize("option", ["timeout", "max_result_chars"])
def test_none_is_not_called_unlimited_where_it_leaves_the_limit_to_the_agent(option):
    with pytest.raises(ConfigurationError) as caught:
        tool(**{option: -1})
    assert "None" not in str(caught.value)
    tool(**{option: None})


def test_a_lambda_needs_a_name():
    with pytest.raises(ConfigurationError, match="pass name="):
        tool(lambda x: x)
    assert tool(lambda x: x, name="same").name == "same"


@pytest.mark.parametrize("thing", [3, "text", int, object(), [], classmethod(print)])
def test_what_is_not_a_function_is_refused(thing):
    with pytest.raises(ConfigurationError):
        tool(thing)


def test_bound_methods_callable_objects_and_partials_are_tools():
    class Shop:
        def price(self, item: str) -> str:
            """Price of an item."""
            return f"price of {item}"

    class Greeter:
        """Greets."""

        async def __call__(self, name: str) -> str:
            return f"hello {name}"

    def send(text: str, token: str, count: int = 1) -> str:
        """Send a text."""
        return f"{text}/{token}/{count}"

    price, greet, sender = tool(Shop().price), tool(Greeter()), tool(functools.partial(send, token="secret"))
    assert (price.name, price.description, greet.name) == ("price", "Price of an item.", "Greeter")
    assert (greet.description, greet.isolation) == ("Greets.", "inline")
    assert (sender.name, sender.description) == ("send", "Send a text.")
    assert invoke(price, item="tea") == "price of tea"
    assert invoke(greet, name="Ada") == "hello Ada"
    assert invoke(sender, text="hi") == "hi/secret/1"


def test_what_a_partial_has_given_is_hidden_from_the_model():
    def send(text: str, token: str) -> str:
        return text + token

    assert list(tool(functools.partial(send, token="secret")).parameters["properties"]) == ["text"]


def test_a_method_decorated_in_its_class_works_on_instances():
    class Shop:
        def __init__(self, currency):
            self.currency = currency

        @tool
        async def price(self, item: str) -> str:
            return f"{item}: 3 {self.currency}"

    assert list(Shop.price.parameters["properties"]) == ["item"]
    assert invoke(Shop("EUR").price, item="tea") == "tea: 3 EUR"
    assert invoke(Shop("SEK").price, item="tea") == "tea: 3 SEK"
    with pytest.raises(ToolError, match="instance"):
        Shop.price.invoke({"item": "tea"})


def test_the_context_parameter_is_filled_and_not_in_the_schema():
    @tool
    async def who(question: str, context: ToolContext) -> str:
        return f"{question} {context.call_id}"

    assert who.wants_context
    assert list(who.parameters["properties"]) == ["question"]
    assert invoke(who, question="me?") == "me? call_1"


def test_an_optional_or_quoted_context_is_recognised():
    async def first(context: ToolContext | None = None): ...
    async def second(context: "ToolContext"): ...
    async def third(context: "ToolContext | None" = None): ...

    assert all(tool(fn).wants_context and tool(fn).parameters["properties"] == {} for fn in (first, second, third))


def test_two_contexts_are_refused():
    async def greedy(one: ToolContext, two: ToolContext): ...

    with pytest.raises(ConfigurationError, match="'two'"):
        tool(greedy)


def test_invoking_does_not_add_the_context_to_the_bound_values():
    @tool
    async def peek(x: int, context: ToolContext) -> int:
        return x

    bound = peek.bind({"x": 1})
    asyncio.run(peek.invoke(bound.values, ToolContext.for_testing()))
    assert bound.values == {"x": 1}


def make(**options):
    given = {"name": "raw", "description": "", "parameters": {"type": "object"}, "fn": lambda **kwargs: kwargs}
    return Tool(**{**given, **options})


def test_a_tool_can_be_built_from_a_schema_and_a_function_of_keywords():
    async def call(**arguments):
        return arguments

    made = make(parameters={"properties": {"x-y": {"type": "integer"}}, "required": ["x-y"]}, fn=call, polling=True)
    assert made.polling
    assert made.spec.parameters["type"] == "object"
    assert invoke(made, **{"x-y": 3}) == {"x-y": 3}


@pytest.mark.parametrize(
    "parameters",
    [
        None,
        [],
        {"type": "array"},
        {"properties": []},
        {"properties": {"a": 3}},
        {"required": "a"},
        {"required": [1]},
        {"x": object()},
        {"x": "\ud800"},
    ],
)
def test_a_schema_that_is_not_one_is_refused(parameters):
    with pytest.raises(ConfigurationError, match="parameters"):
        make(parameters=parameters)


@pytest.mark.parametrize("options", [{"fn": 3}, {"name": None}, {"name": "a b"}, {"colour": "red"}])
def test_a_built_tool_is_checked_like_a_decorated_one(options):
    with pytest.raises(ConfigurationError):
        make(**options)
