"""Reads a function's signature: the arguments a model may give, their types, and which one is the context."""

from __future__ import annotations

import copy
import functools
import inspect
import math
import sys
import types
import typing
from collections.abc import Callable, Mapping
from typing import Annotated, Any

from glidepath import _wire
from glidepath._wire import UNSET, Value
from glidepath.tools import bridge
from glidepath.tools.context import ToolContext
from glidepath.tools.docstrings import read_docstring
from glidepath.values import ConfigurationError

REQUIRED = UNSET
"""The default of a parameter that has none."""

_CONSTRAINTS = ("gt", "ge", "lt", "le", "multiple_of", "min_length", "max_length", "pattern")
_WRONG_KIND = {
    inspect.Parameter.POSITIONAL_ONLY: "is positional-only: a model gives arguments by name, so remove the `/`",
    inspect.Parameter.VAR_POSITIONAL: "takes any number of arguments: use one parameter of type list instead",
    inspect.Parameter.VAR_KEYWORD: "takes any keyword: name the parameters, or use one parameter of type dict",
}


class Parameter(Value, frozen=True, kw_only=True):
    """One argument a model may give."""

    name: str
    kind: Any
    default: Any = REQUIRED
    description: str = ""

    def field(self) -> Any:
        """The struct field for it."""
        if self.default is REQUIRED:
            return (self.name, self.kind)
        if isinstance(self.default, (str, int, float, type(None))):
            return (self.name, self.kind, self.default)
        # A tool that changes its own argument must not change the next call's default.
        return (self.name, self.kind, _wire.field(default_factory=functools.partial(copy.deepcopy, self.default)))


class Signature(Value, frozen=True, kw_only=True):
    """A function's parameters, which of them is the context, and what its docstring says."""

    description: str
    parameters: tuple[Parameter, ...]
    context: str | None = None
    connection: str | None = None
    """The parameter that is a `StoreConnection`."""
    deps: Any = None
    """The type of `deps` in its `ToolContext[...]`; None means any."""
    takes_instance: bool = False
    streams: bool = False
    unannotated: tuple[str, ...] = ()
    """Parameters without an annotation: the model is not told their types."""


def find_innermost_function(fn: object) -> Any:
    """The function inside partials, methods, wrappers and callable objects: where name, docs and globals are."""
    for _ in range(100):  # a wrapper that wraps itself must not hang us
        if isinstance(fn, functools.partial):
            fn = fn.func
        elif inspect.ismethod(fn):
            fn = fn.__func__
        elif hasattr(fn, "__wrapped__"):
            fn = fn.__wrapped__
        elif not inspect.isroutine(fn) and not isinstance(fn, type) and inspect.isfunction(type(fn).__call__):
            fn = type(fn).__call__
        else:
            break
    return fn


def read_signature(fn: Callable[..., Any]) -> Signature:
    """The signature of `fn`; raises `ConfigurationError` naming a parameter that a model cannot give."""
    inner = find_innermost_function(fn)
    signature = _signature(fn)
    own = None if isinstance(fn, functools.partial) else getattr(fn, "__doc__", None)
    description, said = read_docstring(own if isinstance(own, str) else getattr(inner, "__doc__", None))
    taken = _find_bound_keywords(fn)
    given = [parameter for parameter in signature.parameters.values() if parameter.name not in taken]
    takes_instance = _takes_instance(fn, given)
    given = given[1:] if takes_instance else given
    parameters: list[Parameter] = []
    context: str | None = None
    connection: str | None = None
    deps: Any = None
    for parameter in given:
        if parameter.kind in _WRONG_KIND:
            raise ConfigurationError(f"parameter {parameter.name!r} {_WRONG_KIND[parameter.kind]}")
        kind = _resolve(parameter.name, parameter.annotation, inner)
        if _is_connection(kind):
            if connection is not None:
                raise ConfigurationError(f"parameter {parameter.name!r}: only one parameter can be a StoreConnection")
            connection = parameter.name
        elif not _is_context(kind):
            parameters.append(_parameter(parameter, kind, said.get(parameter.name, "")))
        elif context is None:
            context, deps = parameter.name, _deps_of(kind)
        else:
            raise ConfigurationError(f"parameter {parameter.name!r}: only one parameter can be a ToolContext")
    returned = signature.return_annotation
    if not isinstance(returned, str):
        returned = str(typing.get_origin(returned) or returned)
    return Signature(
        description=description,
        parameters=tuple(parameters),
        context=context,
        connection=connection,
        deps=deps,
        takes_instance=takes_instance,
        unannotated=tuple([one.name for one in given if one.annotation is one.empty and one.name != context]),
        streams=any(word in returned for word in ("AsyncIterator", "AsyncGenerator", "AsyncIterable")),
    )


def _signature(fn: Callable[..., Any]) -> inspect.Signature:
    try:
        if sys.version_info >= (3, 14):  # names that exist only for type checkers must not stop us
            import annotationlib

            return inspect.signature(fn, annotation_format=annotationlib.Format.FORWARDREF)
        return inspect.signature(fn)
    except (TypeError, ValueError) as error:
        raise ConfigurationError(
            f"{fn!r} has no signature to read: wrap it in a function with annotated parameters"
        ) from error


def _find_bound_keywords(fn: object) -> set[str]:
    """Keywords that a partial has already set: often secrets, which the model must not see."""
    taken: set[str] = set()
    while isinstance(fn, functools.partial):
        taken.update(fn.keywords)
        fn = fn.func
    return taken


def _takes_instance(fn: object, given: list[inspect.Parameter]) -> bool:
    """True for a method that is being decorated in its class body."""
    if not inspect.isfunction(fn) or not given or given[0].annotation is not inspect.Parameter.empty:
        return False
    return given[0].name == "self" and "." in fn.__qualname__.rpartition("<locals>.")[2]


def _resolve(name: str, annotation: object, inner: object) -> Any:
    """The type an annotation stands for, written as a string or not."""
    if annotation is inspect.Parameter.empty:
        return Any

    def probe() -> None: ...

    probe.__annotations__ = {"it": annotation}
    namespace = {"ToolContext": ToolContext, **getattr(inner, "__globals__", {})}
    try:
        try:
            return typing.get_type_hints(probe, namespace, include_extras=True)["it"]
        except NameError:  # a type defined in the enclosing function
            return typing.get_type_hints(probe, namespace, _locals_of_caller(), include_extras=True)["it"]
    except Exception as error:
        raise ConfigurationError(
            f"parameter {name!r}: the annotation {annotation!r} cannot be resolved ({error}); "
            "import its type at run time, not under `if TYPE_CHECKING`"
        ) from error


def _locals_of_caller() -> Mapping[str, Any]:
    frame = inspect.currentframe()
    while frame is not None and frame.f_globals.get("__name__", "").startswith("glidepath."):
        frame = frame.f_back
    return {} if frame is None else frame.f_locals


def _is_context(kind: object) -> bool:
    if isinstance(kind, type):
        return issubclass(kind, ToolContext)
    origin = typing.get_origin(kind)
    if origin in (Annotated, typing.Union, types.UnionType):
        return any(_is_context(part) for part in typing.get_args(kind))
    return origin is not None and _is_context(origin)


def _is_connection(kind: object) -> bool:
    from glidepath.tools.transactions import StoreConnection

    return isinstance(kind, type) and issubclass(kind, StoreConnection)


def _deps_of(kind: object) -> Any:
    """The type in `ToolContext[...]`, if there is one."""
    inner = typing.get_args(kind)
    if _is_context(typing.get_origin(kind)):
        return None if isinstance(inner[0], typing.TypeVar) or inner[0] is Any else inner[0]
    return next((found for part in inner if (found := _deps_of(part)) is not None), None)


def _parameter(parameter: inspect.Parameter, kind: object, documented: str) -> Parameter:
    kind, described = _split_annotated(kind)
    default = REQUIRED if parameter.default is inspect.Parameter.empty else parameter.default
    if default is None and kind is not Any:
        kind = kind | None if isinstance(kind, type) else typing.Optional[kind]  # noqa: UP045 - may be Annotated
    if default is not REQUIRED:
        _check_default(parameter.name, kind, default)
    return Parameter(name=parameter.name, kind=kind, default=default, description=described or documented)


def _split_annotated(kind: Any) -> tuple[Any, str]:
    """The type with everything msgspec understands, and the description in an `Annotated`.

    A description may be a plain str, `Meta(description=...)`, `Doc(...)` or pydantic's `Field(description=...)`; the
    bounds of annotated-types and of `Field` become a `Meta`, so that they are checked and not silently dropped.
    """
    if typing.get_origin(kind) is not Annotated:
        return kind, ""
    described = ""
    bounds: dict[str, Any] = {}
    for extra in kind.__metadata__:
        if isinstance(extra, _wire.Meta):
            described = extra.description or described
            continue
        text = extra if isinstance(extra, str) else getattr(extra, "description", getattr(extra, "documentation", None))
        described = text if isinstance(text, str) else described
        for part in (extra, *(getattr(extra, "metadata", None) or ())):
            found = {key: getattr(part, key, None) for key in _CONSTRAINTS}
            bounds.update({key: value for key, value in found.items() if value is not None})
    return (Annotated[kind, _wire.Meta(**bounds)] if bounds else kind), described


def _check_default(name: str, kind: object, default: object) -> None:
    try:
        if isinstance(default, float) and not math.isfinite(default):
            raise ValueError("not a JSON number")
        shown = bridge.encode(default)
        if default is not None:  # `x: str = None` is common, and a null for it is dropped
            _wire.decoder(kind, dec_hook=bridge.build)(shown)
    except Exception as error:
        raise ConfigurationError(
            f"parameter {name!r}: the default {default!r} is not a value a model could give ({error}); "
            "use None, or a value of the annotated type"
        ) from error
