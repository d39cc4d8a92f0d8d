"""The error tree is drawn in a docstring: the drawing and the classes must agree."""

import inspect
import re

import pytest

from glidepath.values import errors

LINE = re.compile(r"^(?P<indent>[|\s]*)(?:\+-- )?(?P<name>[A-Z]\w+)\s*(?P<what>.*)$")


def drawn():
    """Pairs of (child, parent) as the docstring draws them."""
    lines = [line for line in errors.__doc__.splitlines()[1:] if line.strip()]
    path, pairs = [], {}
    for line in lines:
        match = LINE.match(line)
        assert match, f"not a line of a tree: {line!r}"
        depth = 0 if "+--" not in line else line.index("+--") // 4 + 1
        path = [*path[:depth], match["name"]]
        pairs[match["name"]] = path[depth - 1] if depth else None
        assert match["what"] or depth == 0, f"{match['name']} is drawn without a word about it"
    return pairs


def existing():
    kinds = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, BaseException)]
    roots = (errors.GlidepathError, errors.RunInterrupted)
    return {kind.__name__: None if kind in roots else kind.__base__.__name__ for kind in kinds}


def test_the_drawn_tree_is_the_tree_of_the_classes():
    assert drawn() == existing()


def test_every_error_is_exported_and_documented():
    assert set(errors.__all__) == set(existing())
    for name in errors.__all__:
        assert getattr(errors, name).__doc__


@pytest.mark.parametrize(
    ("name", "retryable"),
    [
        ("ModelError", False),
        ("TransientError", True),
        ("RateLimitedError", True),
        ("EmptyResponseError", True),
        ("ContextOverflowError", False),
        ("RejectedError", False),
        ("RefusedError", False),
        ("InconsistentHistoryError", False),
        ("BreakerOpenError", False),
    ],
)
def test_a_model_error_knows_whether_it_is_worth_another_try(name, retryable):
    assert getattr(errors, name).retryable is retryable


def test_every_kind_of_model_error_says_so():
    kinds = {
        name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, errors.ModelError)
    }
    assert len(kinds) == 9


@pytest.mark.parametrize("kind", [errors.RateLimitedError, errors.TransientError])
def test_an_error_that_passes_carries_its_delay(kind):
    error = kind("slow down", retry_after=3)
    assert (str(error), error.retry_after) == ("slow down", 3)
    assert kind().retry_after is None
