"""Tools: a function with a name, a description, a schema, and how it may run."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Unpack, overload

from glidepath import _wire
from glidepath.spi import ToolSpec
from glidepath.tools.binding import Binder, Bound, SchemaBinder, SignatureBinder
from glidepath.tools.context import ToolContext
from glidepath.tools.options import Isolation, RunOptions, ToolOptions, check_name, check_options
from glidepath.tools.progress import drain, settle, step_generator
from glidepath.tools.signature import Signature, find_innermost_function, read_signature
from glidepath.tools.threads import run_in_thread
from glidepath.values import ConfigurationError, ToolError

if TYPE_CHECKING:
    from glidepath.tools.sandbox.policy import Sandbox

Runner = Callable[[dict[str, Any], ToolContext | None], Awaitable[Any]]


class Tool:
    """A function a model may call. Immutable; shared by any number of runs.

    Made by `@tool` from a function's signature; or directly, for a function that takes `**kwargs` and whose
    `parameters` are a JSON Schema from elsewhere: `Tool(name=..., description=..., parameters=..., fn=...)`. Then
    arguments are checked at the schema's top level only (required and unknown keys, the `type` of each value), a
    `default` in the schema is not filled in, and `fn` never gets a `ToolContext`.

    Calling a tool calls its plain function.
    """

    name: str
    description: str
    parameters: dict[str, Any]
    spec: ToolSpec
    fn: Callable[..., Any]
    wants_context: bool
    exclusive: bool
    """Runs alone: makes its whole batch sequential."""
    parallel_safe: bool
    """May run beside other calls under `ExecutionMode.AUTO`, and uses no slot of the per-turn cap."""
    counts_toward_limit: bool
    """Counts against the limits on tool calls."""
    votes_on_termination: bool
    """Its result counts in the vote on whether the run ends."""
    terminal: bool
    """Its success ends the run."""
    idempotent: bool
    """May be repeated after a crash."""
    transactional: bool
    """Its effect is kept in the store's own database, in one transaction with its result."""
    read_only: bool
    """Only looks, and changes nothing: its calls may run beside other calls under `ExecutionMode.AUTO`."""
    consequential: bool
    """Changes the world: sends, pays, writes, deletes."""
    untrusted: bool
    """Its results come from outside: mail, web pages, files that others wrote."""
    polling: bool
    """Repeating the same call is its purpose."""
    background: bool
    """Its call returns a handle at once; the model collects the result later."""
    timeout: float | None
    """Seconds it may take."""
    max_result_chars: int | None
    """Characters of its result that are kept."""
    max_calls: int | None
    """How often it may run in one run of an agent."""
    aborts_siblings_on_error: bool
    """Its failure cancels the other calls of its batch."""
    requires_approval: bool
    """A person decides about every call."""
    approval_reason: str | None
    """What that person is told about it: a pending call's `reason`."""
    isolation: Isolation
    """Where it runs: on the loop, on a thread, or in its own process."""
    sandbox: Sandbox | None
    """What its process may reach; None means everything that you can reach."""
    strict: bool | None
    """The provider enforces its schema, if it can; None follows the agent's `strict_tools`."""
    overlaps: bool
    """Its calls may run beside others under `ExecutionMode.AUTO`: it is `read_only`, `parallel_safe` or an agent."""
    deps_type: Any = None
    """The type that `run(deps=...)` must have, from its `ToolContext[...]`; None means any."""
    origins: tuple[str, ...] = ()
    """The origins of its results: its name if it is `untrusted`, else nothing."""
    approval_is_firm: bool = False
    """No rule and no reviewer answers for the person: the tool is not what it was."""
    asks_back: bool = False
    """It may raise `NeedsInput`: a person is asked in the middle of its call."""
    makes_calls: bool = False
    """It may raise `NeedsCalls`: the runtime makes calls of other tools for it, in the middle of its call."""
    hands: tuple[Tool, ...] = ()
    """Tools that only this tool may call: the model does not see them."""
    plain: bool
    """Runs as its function's own coroutine, with nothing around it, and takes no context."""
    original: Tool | None = None
    """The tool that this one starts in the background."""
    breaker: Any = None
    """Its circuit breaker, kept by the runtime; None until its first failure."""

    def __init__(
        self,
        *,
        name: str,
        description: str,
        parameters: Mapping[str, Any],
        fn: Callable[..., Any],
        **options: Unpack[RunOptions],
    ) -> None:
        given = check_options({"name": name, "description": description, **options})
        if name is None:
            raise ConfigurationError("a Tool needs a name: pass name='...', a short identifier")
        if not callable(fn):
            raise ConfigurationError(f"tool {name!r}: fn must be callable, got {type(fn).__name__}")
        binder = SchemaBinder(name, _check_schema(name, parameters))
        self._fill(fn, given, binder, Signature(description="", parameters=()))

    @classmethod
    def from_function(cls, fn: Callable[..., Any], options: Mapping[str, Any]) -> Tool:
        """The tool a function's signature and docstring describe."""
        given = check_options(options)
        if not callable(fn) or isinstance(fn, type):
            raise ConfigurationError(f"a tool is made from a function, got {fn!r}: decorate a function or a method")
        if given["name"] is None:
            own = getattr(find_innermost_function(fn), "__name__", None)
            given["name"] = type(fn).__name__ if own in (None, "__call__") else own
            check_name(given["name"])
        try:
            signature = read_signature(fn)
            binder = SignatureBinder(given["name"], signature.parameters)
        except ConfigurationError as error:
            raise ConfigurationError(f"tool {given['name']!r}: {error}") from error
        self = cls.__new__(cls)
        self._fill(fn, given, binder, signature)
        _log_missing_descriptions(self, signature)
        return self

    def _fill(self, fn: Callable[..., Any], given: dict[str, Any], binder: Binder, signature: Signature) -> None:
        fields = self.__dict__  # `__setattr__` refuses
        fields.update(given)
        if given["description"] is None:
            fields["description"] = signature.description
        fields["parameters"] = schema = _wire.freeze(binder.schema)  # every run of every agent shares it
        fields["spec"] = ToolSpec(self.name, self.description, schema, given["strict"])
        fields["wants_context"], fields["deps_type"] = signature.context is not None, signature.deps
        fields["overlaps"] = self.read_only or self.parallel_safe
        fields["origins"] = (self.name,) if self.untrusted else ()
        _check_transactional(self.name, fn, signature, given)
        fields["isolation"] = given["isolation"] or ("inline" if _is_async(fn) else "thread")
        fields["_binder"] = binder
        fields["_bind"] = binder.bind
        if type(self).bind is Tool.bind:
            fields["bind"] = binder.bind  # the same as the method below, one call less
        fields["_signature"] = signature
        fields["_context_name"] = signature.context
        fields["_unbound"] = signature.takes_instance
        if self.isolation == "process" and signature.context is not None:
            raise ConfigurationError(
                f"tool {self.name!r}: parameter {signature.context!r}: a process cannot report or spawn, so it gets no "
                "ToolContext; remove the parameter or use isolation='thread'"
            )
        self._take(fn)

    def _take(self, fn: Callable[..., Any]) -> None:
        fields = self.__dict__
        fields["fn"] = fn
        # The function's own coroutine can be awaited as it is.
        direct = self.isolation == "inline" and _is_coroutine_function(fn) and not self._signature.streams
        run = None if direct else self._runner(fn)
        fields["_run"] = self._refuse if self._unbound else run
        fields["plain"] = fields["_run"] is None and not self.wants_context
        inner = find_innermost_function(fn)
        fields["__wrapped__"] = fn
        fields["__name__"] = getattr(inner, "__name__", self.name)
        fields["__qualname__"] = getattr(inner, "__qualname__", self.name)
        fields["__module__"] = getattr(inner, "__module__", __name__)
        fields["__doc__"] = getattr(inner, "__doc__", None)

    def _runner(self, fn: Callable[..., Any]) -> Runner:
        if self.isolation == "inline":
            return partial(_run_inline, fn)
        if self.transactional:
            from glidepath.tools.transactions import run_transactional

            return partial(run_transactional, fn, self.name, self._signature.connection or "")
        if self.isolation == "thread":
            return partial(_run_in_thread, fn, self.name)
        from glidepath.tools.processes import Reference, run_in_process

        try:
            return partial(run_in_process, Reference(fn), sandbox=self.sandbox)
        except ConfigurationError as error:
            raise ConfigurationError(f"tool {self.name!r}: {error}") from error

    def _check_bound(self) -> None:
        """Raise `ConfigurationError` for the method of a class: it has no `self` to run with."""
        if self._unbound:
            raise ConfigurationError(f"tool {self.name!r}: {self._needs_instance()}")

    def _needs_instance(self) -> str:
        name = self.__name__
        return f"{name} is a method: give the agent `instance.{name}`, not the class's"

    def _refuse(self, _values: dict[str, Any], _context: ToolContext | None) -> Awaitable[Any]:
        raise ToolError(self._needs_instance())

    def bind(self, arguments: Mapping[str, Any] | _wire.Raw) -> Bound:
        """The arguments, checked and typed; raises `ArgumentsError`, with a text for the model, and nothing else."""
        return self._bind(arguments)

    def invoke(self, values: dict[str, Any], context: ToolContext | None = None) -> Awaitable[Any]:
        """Start one call with bound `values`; await it for what the function returns or raises.

        Await it at once and only once: an inline `async def` returns its own coroutine, unwrapped.
        """
        if self._context_name is not None:
            values = {**values, self._context_name: context}
        if self._run is None:
            return self.fn(**values)  # type: ignore[no-any-return]
        return self._run(values, context)

    def _copy_with(self, **changes: object) -> Tool:
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__, **changes)
        return other

    def _copy_with_own_breaker(self, **changes: object) -> Tool:
        """A changed copy with its own circuit breaker."""
        other = self._copy_with(**changes)
        other.__dict__.pop("breaker", None)
        return other

    def renamed(self, name: str) -> Tool:
        """The same tool under another name."""
        check_name(name)
        spec = _wire.replace(self.spec, name=name)
        origins = (name,) if self.untrusted else ()
        return self._copy_with_own_breaker(name=name, spec=spec, origins=origins).checked_by(
            self._binder.with_name(name)
        )

    def checked_by(self, binder: Binder) -> Tool:
        """The same tool, its arguments checked by another binder."""
        short = {"bind": binder.bind} if "bind" in self.__dict__ else {}
        return self._copy_with(_binder=binder, _bind=binder.bind, **short)

    def asking_back(self) -> Tool:
        """The same tool, which may ask a person in the middle of a call by raising `NeedsInput`."""
        return self._copy_with(asks_back=True)

    def making_calls(self, hands: Sequence[Tool] = ()) -> Tool:
        """The same tool, which may have other tools called in the middle of a call by raising `NeedsCalls`.

        Only this tool may call `hands`. Each of its steps runs in its own task.
        """
        return self._copy_with(makes_calls=True, hands=tuple(hands), isolation="task")

    def overlapping(self) -> Tool:
        """The same tool, which may run beside others under `ExecutionMode.AUTO` and still uses a slot of the cap."""
        return self._copy_with(overlaps=True)

    def answering(self, run: Runner) -> Tool:
        """The same tool with another body, such as the answers of a recorded run."""
        return self._copy_with_own_breaker(
            _run=run, isolation="inline", wants_context=True, plain=False, deps_type=None, background=False
        )

    def starting(self, run: Runner) -> Tool:
        """The same tool, whose call only starts it: `run` does, and what it returns is what the model is told."""
        told = f"{self.description} Runs in the background: the answer is an id at once, and collect gives the result."
        spec = _wire.replace(self.spec, description=told.strip())
        changes = {"_run": run, "isolation": "inline", "wants_context": True, "plain": False, "spec": spec}
        return self._copy_with(**changes, original=self, timeout=None, _context_name=None, origins=())

    def __call__(self, *args: object, **kwargs: object) -> Any:
        """Call the plain function, as if it were not a tool."""
        return self.fn(*args, **kwargs)

    def __get__(self, instance: object, owner: type | None = None) -> Tool:
        if instance is None or not self._unbound:
            return self
        bound = self._copy_with_own_breaker(_unbound=False)
        bound._take(self.fn.__get__(instance, owner))  # noqa: SLF001 - a copy of this object
        return bound

    def __setattr__(self, name: str, _value: object) -> None:
        raise AttributeError(f"a Tool is immutable: make another one with {name}=... instead")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"a Tool is immutable: {name} cannot be deleted")

    def __repr__(self) -> str:
        return f"<Tool {self.name}>"

    # What `_fill` and `_take` keep for `bind` and `invoke`; `_run` is None where the function runs as it is.
    _binder: Binder
    _bind: Callable[[Mapping[str, Any] | _wire.Raw], Bound]
    _signature: Signature
    _context_name: str | None
    _unbound: bool
    _run: Runner | None
    __name__: str


@overload
def tool(fn: Callable[..., Any], /, **options: Unpack[ToolOptions]) -> Tool: ...
@overload
def tool(fn: None = None, /, **options: Unpack[ToolOptions]) -> Callable[[Callable[..., Any]], Tool]: ...
def tool(fn: Callable[..., Any] | None = None, /, **options: object) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Make a function a tool: `@tool`, `@tool(...)` or `tool(fn, ...)`.

    Name, description and schema come from the function, its docstring and its annotations; raises
    `ConfigurationError`, naming the option or the parameter and the fix, when they cannot.
    """
    if fn is None:
        check_options(options)  # a wrong option is reported where it is written
        return lambda function: Tool.from_function(function, options)
    if isinstance(fn, Tool):
        if options:
            raise ConfigurationError(f"{fn.name!r} is already a tool: pass the options where it is made")
        return fn
    return Tool.from_function(fn, options)


def _log_missing_descriptions(made: Tool, signature: Signature) -> None:
    """Log, once for each function, what the model is not told about a tool."""
    where = (getattr(made.fn, "__module__", ""), getattr(made.fn, "__qualname__", made.name))
    gaps = [f"parameter {name!r} has no annotation" for name in signature.unannotated]
    if not made.description:
        gaps.insert(0, "there is no description: write a docstring, or pass description=")
    if gaps and where not in _TOLD:
        _TOLD.add(where)
        _log.warning("tool %r: %s; the model has to guess", made.name, "; ".join(gaps))


_TOLD: set[tuple[str, str]] = set()
_log = logging.getLogger("glidepath")


def _check_transactional(name: str, fn: object, signature: Signature, given: Mapping[str, Any]) -> None:
    """Raise `ConfigurationError` unless the option and the parameter go together, on a plain function."""
    how = "write `@tool(transactional=True)` above a plain `def` with a parameter `connection: StoreConnection`"
    if not given["transactional"]:
        if signature.connection is not None:
            raise ConfigurationError(f"tool {name!r}: parameter {signature.connection!r} needs transactional=True")
    elif signature.connection is None:
        raise ConfigurationError(f"tool {name!r}: transactional=True without a StoreConnection: {how}")
    elif given["isolation"] not in (None, "thread"):
        raise ConfigurationError(f"tool {name!r}: transactional=True runs on a thread: remove isolation=")
    elif _is_async(fn) or inspect.isgeneratorfunction(fn):
        raise ConfigurationError(f"tool {name!r}: transactional=True is for a plain function: {how}")


def _check_schema(name: str, parameters: object) -> dict[str, Any]:
    """A checked copy of a schema from elsewhere; raises `ConfigurationError`."""
    wrong = f"tool {name!r}: parameters"
    if not isinstance(parameters, Mapping):
        raise ConfigurationError(f"{wrong}: expected a JSON Schema dict, got {type(parameters).__name__}")
    try:
        schema = _wire.loads(_wire.encode(dict(parameters)))
    except Exception as error:
        raise ConfigurationError(f"{wrong}: cannot be written as JSON ({error})") from error
    if schema.setdefault("type", "object") != "object":
        raise ConfigurationError(f"{wrong}: type must be 'object', got {schema['type']!r}")
    if not isinstance(properties := schema.get("properties", {}), dict):
        raise ConfigurationError(f"{wrong}: properties must be an object, got {type(properties).__name__}")
    for key, shown in properties.items():
        if not isinstance(shown, (dict, bool)):
            raise ConfigurationError(f"{wrong}: properties.{key} must be a schema, got {shown!r}")
    required = schema.get("required", [])
    if not isinstance(required, list) or not all(isinstance(key, str) for key in required):
        raise ConfigurationError(f"{wrong}: required must be a list of names, got {required!r}")
    return schema  # type: ignore[no-any-return]


# --- running ----------------------------------------------------------------------------------------------------


def _is_coroutine_function(fn: object) -> bool:
    return inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(getattr(fn, "__call__", None))  # noqa: B004


def _is_async(fn: object) -> bool:
    if _is_coroutine_function(fn):
        return True
    return inspect.isasyncgenfunction(fn) or inspect.isasyncgenfunction(getattr(fn, "__call__", None))  # noqa: B004


async def _run_inline(fn: Callable[..., Any], values: dict[str, Any], context: ToolContext | None) -> Any:
    result = fn(**values)
    return await settle(step_generator(result) if inspect.isgenerator(result) else result, context)


async def _run_in_thread(fn: Callable[..., Any], name: str, values: dict[str, Any], context: ToolContext | None) -> Any:
    def call() -> Any:
        if _is_async(fn):  # isolation="thread" was asked for: its own loop, so that it may block
            import asyncio

            return asyncio.run(_run_inline(fn, values, context))
        result = fn(**values)
        return drain(result, context) if inspect.isgenerator(result) else result

    return await run_in_thread(call, name, context)
