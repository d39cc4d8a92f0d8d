"""The private parts of SDKs that glidepath relies on are there, and where one is gone, nothing breaks."""

import sys
import threading
from contextvars import ContextVar
from types import SimpleNamespace

import pytest

from glidepath._sdk_privates import (
    GoogleConnection,
    context_variable,
    dbos_instance,
    google_connection,
    is_launched,
    learn_alt_enter,
    load_scenario,
    set_platform_header,
    stop_events,
)


@pytest.mark.parametrize(("sdk", "client"), [("openai", "AsyncOpenAI"), ("anthropic", "AsyncAnthropic")])
def test_a_client_gets_its_platform_without_a_thread(sdk, client):
    made = getattr(pytest.importorskip(sdk), client)(api_key="k")
    before = threading.active_count()
    assert isinstance(set_platform_header(made, sdk)._platform, str)
    assert threading.active_count() == before


def test_a_client_without_a_platform_is_left_alone():
    pytest.importorskip("openai")
    client = SimpleNamespace()
    assert set_platform_header(client, "openai") is client
    assert vars(client) == {}


def test_a_google_client_tells_its_key_and_its_address():
    genai = pytest.importorskip("google.genai")
    client = genai.Client(api_key="the key", http_options={"base_url": "https://example.com"})
    assert google_connection(client) == GoogleConnection("the key", "https://example.com", vertex=False)


def test_a_google_client_that_hides_its_connection_has_no_known_key_and_address():
    assert google_connection(object()) == GoogleConnection(None, "", vertex=False)


def test_dbos_has_its_instance_where_it_is_looked_for():
    pytest.importorskip("dbos")
    assert hasattr(sys.modules["dbos._dbos"], "_dbos_global_instance")
    assert dbos_instance() is None


def test_a_dbos_without_the_known_parts_keeps_its_pace_and_counts_as_launched():
    assert stop_events(None) == []
    assert stop_events(object()) == []
    assert is_launched(object())
    assert not is_launched(None)
    assert not is_launched(SimpleNamespace(_launched=False))


def test_the_api_of_opentelemetry_keeps_its_context_in_a_variable(monkeypatch):
    context = pytest.importorskip("opentelemetry.context")
    context.get_current()  # makes the one that it uses
    assert isinstance(context_variable(), ContextVar)
    monkeypatch.setattr(context, "_RUNTIME_CONTEXT", object())
    assert context_variable() is None


def test_textual_learns_what_terminals_send_for_alt_enter():
    parser = pytest.importorskip("textual._xterm_parser").XTermParser()
    learn_alt_enter()
    assert [event.key for event in parser.feed("\x1b\r")] == ["ctrl+j"]


def test_an_object_of_a_benchmark_is_put_into_its_first_state():
    loaded = []
    instance = SimpleNamespace(_load_scenario=lambda scenario, *, long_context: loaded.append((scenario, long_context)))
    load_scenario(instance, {"cwd": "/"}, long_context=True)
    load_scenario(SimpleNamespace(), {}, long_context=False)
    assert loaded == [({"cwd": "/"}, True)]
