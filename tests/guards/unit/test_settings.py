"""What the settings accept, and the two ladders that are configured apart: output caps and the turn notice."""

from decimal import Decimal

import pytest

from glidepath.errors import ConfigurationError
from glidepath.guards import (
    DEFAULT_NOTICE,
    LANDING_NOTICE,
    GracefulTurnLimit,
    GuardrailsConfig,
    GuardSet,
    MaxTokensRecovery,
    TokenScaling,
)

COUNTS = (
    "max_tokens_recoveries",
    "max_repeated_tool_steps",
    "max_error_streak",
    "read_only_loop_threshold",
    "max_premature_end_recoveries",
    "max_empty_recoveries",
    "reserve_tokens",
)


@pytest.mark.parametrize("field", COUNTS)
@pytest.mark.parametrize("value", [-1, True, 1.5, float("nan"), "three", [], "\udcff"])
def test_a_count_that_is_none_is_refused_by_name(field, value):
    with pytest.raises(ConfigurationError, match=field):
        GuardrailsConfig(**{field: value})


@pytest.mark.parametrize("value", [True, None, -1, "-0.1", "x", "", float("nan"), "NaN", float("inf"), "2", []])
def test_a_fraction_that_is_none_is_refused_by_name(value):
    with pytest.raises(ConfigurationError, match="reserve_cost_fraction"):
        GuardrailsConfig(reserve_cost_fraction=value)


@pytest.mark.parametrize("value", ["0.1", Decimal("0.25"), 0.5, 0, "0"])
def test_a_fraction_may_be_any_kind_of_number(value):
    assert GuardrailsConfig(reserve_cost_fraction=value).reserve_cost_fraction == value


def test_the_defaults_are_the_specified_ones():
    config = GuardrailsConfig()
    assert [getattr(config, field) for field in COUNTS] == [2, 3, 5, None, 2, 1, 512]
    assert config.reserve_cost_fraction == "0.1"


def made(config):
    return GuardSet(config).make_call_guards({}), GuardSet(config).make_stop_guards({})


def test_the_guards_stand_in_a_fixed_order_and_a_zero_leaves_one_out():
    names = [[guard.name for guard in kind] for kind in made(GuardrailsConfig(read_only_loop_threshold=8))]
    assert names == [
        ["repetition", "error_streak", "read_only"],
        ["max_tokens_recovery", "premature_end", "empty_answer"],
    ]
    off = GuardrailsConfig(**dict.fromkeys(COUNTS, 0))
    assert [[guard.name for guard in kind] for kind in made(off)] == [[], ["empty_answer"]]


# --- output caps ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scaling", "ceiling", "steps"),
    [
        (TokenScaling.Double(), None, [(4096, 0, 8192), (8192, 1, 16384), (16384, 2, 32768)]),
        (TokenScaling.Double(), 10_000, [(4096, 0, 8192), (8192, 1, 10_000), (10_000, 2, None)]),
        (TokenScaling.Linear(2_000), None, [(4096, 0, 6_096), (6_096, 1, 8_096)]),
        (TokenScaling.Linear(0), None, [(4096, 0, None)]),
        (TokenScaling.Fixed([8_000, 16_000]), None, [(4_096, 0, 8_000), (8_000, 1, 16_000), (16_000, 2, None)]),
        (TokenScaling.Fixed([4_000]), None, [(4_096, 0, None)]),
        (TokenScaling.Fixed([8_000, 16_000]), 12_000, [(4_096, 0, 8_000), (8_000, 1, 12_000)]),
    ],
)
def test_the_next_cap(scaling, ceiling, steps):
    recovery = MaxTokensRecovery(max_attempts=3, scaling=scaling, ceiling=ceiling)
    assert [recovery.next_cap(cap, attempt) for cap, attempt, _ in steps] == [expected for *_, expected in steps]


def test_doubling_is_three_attempts_without_a_ceiling():
    assert MaxTokensRecovery.doubling() == MaxTokensRecovery(
        max_attempts=3, scaling=TokenScaling.Double(), ceiling=None
    )


@pytest.mark.parametrize(
    "build",
    [
        lambda: TokenScaling.Linear(-1),
        lambda: TokenScaling.Linear(True),
        lambda: TokenScaling.Fixed([]),
        lambda: TokenScaling.Fixed([0]),
        lambda: TokenScaling.Fixed("123"),
        lambda: TokenScaling.Fixed(5),
        lambda: MaxTokensRecovery(max_attempts=0, scaling=TokenScaling.Double()),
        lambda: MaxTokensRecovery(max_attempts=1, scaling=TokenScaling.Double),
        lambda: MaxTokensRecovery(max_attempts=1, scaling=TokenScaling.Double(), ceiling=0),
    ],
)
def test_a_ladder_of_caps_that_makes_no_sense_is_refused(build):
    with pytest.raises(ConfigurationError):
        build()


# --- the turn notice --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cap", "grace", "soft"),
    [
        *[(50, 5, 45), (10, 3, 7), (6, 5, 1), (10, 10, 1), (10, 99, 1), (1, 3, 1)],
        *[(1, None, 1), (2, None, 1), (4, None, 3), (8, None, 6), (20, None, 15), (100, None, 95)],
    ],
)
def test_the_soft_limit(cap, grace, soft):
    assert GracefulTurnLimit(cap, grace).soft_limit() == soft


def test_no_grace_is_no_notice():
    assert not GracefulTurnLimit(10, 0).enabled
    assert GracefulTurnLimit(10).enabled


def test_a_provided_grace_is_asked_at_every_poll():
    grace = [3]
    limit = GracefulTurnLimit(20, 3, grace_provider=lambda: grace[0])
    assert limit.soft_limit() == 17
    grace[0] = 8
    assert limit.soft_limit() == 12


@pytest.mark.parametrize(("provided", "soft"), [(0, 9), (-5, 9), (999, 1), ("x", 7), (None, 7), (True, 7), (2.0, 7)])
def test_a_provided_grace_is_brought_into_range_and_nonsense_is_passed_over(provided, soft):
    assert GracefulTurnLimit(10, 3, grace_provider=lambda: provided).soft_limit() == soft


def test_a_grace_provider_that_fails_is_passed_over():
    assert GracefulTurnLimit(10, 3, grace_provider=lambda: 1 // 0).soft_limit() == 7


def test_the_message_provider_is_called_only_for_the_notice():
    asked = []
    limit = GracefulTurnLimit(10, 3, lambda: asked.append(1) or "custom")
    limit.soft_limit()
    assert asked == []
    assert limit.notice() == ("custom", None)
    assert asked == [1]


@pytest.mark.parametrize("provider", [lambda: 1 // 0, lambda: None, lambda: "", lambda: " \n", lambda: b"x"])
def test_a_message_provider_that_fails_gives_the_default_text_and_the_error(provider):
    text, error = GracefulTurnLimit(10, 3, provider).notice()
    assert text == DEFAULT_NOTICE
    assert isinstance(error, Exception)


@pytest.mark.parametrize(
    "arguments", [(0,), (-1,), (True,), ("5",), (5, -1), (5, True), (5, 1.5), (5, 1, "text"), (5, 1, None, 3)]
)
def test_a_turn_limit_that_makes_no_sense_is_refused(arguments):
    with pytest.raises(ConfigurationError):
        GracefulTurnLimit(*arguments)


@pytest.mark.parametrize("text", [DEFAULT_NOTICE, LANDING_NOTICE])
def test_the_notices_ask_for_the_final_answer_and_what_is_open(text):
    assert "final answer" in text
    assert "done" in text
    assert "open" in text
