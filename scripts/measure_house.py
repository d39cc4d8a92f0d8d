"""Measure the building: how much there is, how it is typed, who writes what, how far a turn has to walk.

python scripts/measure_house.py          # a table
python scripts/measure_house.py --json   # the same, to compare
"""

import argparse
import ast
import asyncio
import importlib
import itertools
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "glidepath"
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def whole() -> dict[str, str]:
    """Every module of the package, by its path."""
    return {path.relative_to(PACKAGE).as_posix(): path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py")}


def lines_by_package() -> dict[str, int]:
    """Lines of each package, and of the modules beside them: reported, so that growth is seen; nothing fails on it."""
    found: Counter[str] = Counter()
    for label, text in whole().items():
        found[label.partition("/")[0]] += len(text.splitlines())
    return dict(found.most_common())


def parameters(texts: dict[str, str] | None = None) -> tuple[int, list[str]]:
    """How many parameters there are but self and cls, and those annotated with a bare `Any`, or an alias of it.

    `texts` are modules to look at instead of the package's own.
    """
    if texts is None:
        texts = whole()
    found = {label: ast.parse(text) for label, text in texts.items()}
    names = {"Any"}.union(*map(_aliases_of_any, found.values()))
    every, bare = 0, []
    for label, tree in found.items():
        for node in ast.walk(tree):
            if not isinstance(node, FUNCTIONS):
                continue
            given = node.args
            for one in (*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg):
                if one is None or one.arg in ("self", "cls"):
                    continue
                every += 1
                if _is_any(one.annotation, names):
                    bare.append(f"{label}:{one.lineno}: {node.name}({one.arg})")
    return every, bare


def _aliases_of_any(tree: ast.Module) -> set[str]:
    """Names that stand for `Any`: `Thing = Any`, `Thing: TypeAlias = Any`, `from typing import Any as Thing`."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            found |= {one.asname for one in node.names if one.name == "Any" and one.asname}
        elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None and _is_any(node.value, {"Any"}):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            alias = isinstance(node, ast.Assign) or _last(node.annotation) == "TypeAlias"
            found |= {one.id for one in targets if isinstance(one, ast.Name) and alias}
    return found


def _is_any(annotation: ast.AST | None, names: set[str]) -> bool:
    """`Any`, in whatever way it is written: by an alias, as a text, as `typing.Any`, or in a union with something."""
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        return annotation.value in names
    if isinstance(annotation, ast.BinOp):  # what is in a union with `Any` is checked as little
        return _is_any(annotation.left, names) or _is_any(annotation.right, names)
    return annotation is not None and _last(annotation) in names


def public_parameters_of_any() -> list[str]:
    """Parameters of public functions, methods and constructors that are annotated with a bare `Any`.

    Public is what the surface in `api/` has; methods that a class has from its bases, ours, are its own.
    """
    import inspect

    found = set()
    for dump in sorted((ROOT / "api").glob("*.txt")):
        module = importlib.import_module(dump.stem)
        for name in getattr(module, "__all__", ()):
            thing = getattr(module, name, None)
            owners = [(name, thing)]
            if inspect.isclass(thing):
                bases = [base for base in thing.__mro__ if base.__module__.startswith("glidepath")]
                owners = [
                    (f"{name}.{key}", inspect.getattr_static(thing, key))
                    for key in {key for base in bases for key in vars(base)}
                    if not key.startswith("_") or key in ("__init__", "__call__")
                ]
            for label, member in owners:
                function = getattr(member, "__func__", member)
                if inspect.isfunction(function) and function.__module__.startswith("glidepath"):
                    given = inspect.signature(function).parameters.values()
                    found |= {f"{dump.stem}.{label}({one.name})" for one in given if one.annotation in (Any, "Any")}
    return sorted(found)


def repeated_names() -> tuple[list[str], list[str]]:
    """Public class names and module names that occur more than once, in the whole house."""
    classes: Counter[str] = Counter()
    modules: Counter[str] = Counter()
    for path in PACKAGE.rglob("*.py"):
        if path.stem not in ("__init__", "__main__") and not is_facade(path):
            modules[path.stem] += 1
        tree = ast.parse(path.read_text(encoding="utf-8"))
        classes.update(node.name for node in tree.body if isinstance(node, ast.ClassDef) and node.name[0] != "_")
    return sorted(n for n, c in classes.items() if c > 1), sorted(n for n, c in modules.items() if c > 1)


def run_fields() -> int:
    """The annotated fields of `Run`, those of its bases included."""
    from glidepath.run import Run

    return len({name for base in Run.__mro__ for name in vars(base).get("__annotations__", {})})


MUTATORS = frozenset({"add", "append", "clear", "extend", "insert", "pop", "remove", "setdefault", "update"})
OWNER = "run"
"""The package whose classes hold a run's state."""
PLAIN_PARTS = ("meter", "watch")  # parts that are classes with slots, not records


def _last(node: ast.AST) -> str:
    """The last name of an expression: `turn` of `self.run.turn`."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def parts_of_a_run() -> dict[str, frozenset[str]]:
    """The fields of `Run` itself, under its own name, and of each part of its state, under the part's."""
    import typing

    from glidepath._wire import Record
    from glidepath.run import Run, seams

    kinds = typing.get_type_hints(Run, localns=vars(seams))  # only type checkers import these
    parts = {"run": frozenset(Run.__struct_fields__)}
    for name, kind in kinds.items():
        if isinstance(kind, type) and issubclass(kind, Record):
            parts[name] = frozenset(kind.__struct_fields__)
        elif name in PLAIN_PARTS:
            parts[name] = frozenset(kind.__slots__)
    return parts


def foreign_writes(texts: dict[str, str] | None = None) -> list[str]:
    """Where code outside `run` assigns to a field of a run or of a part of it, or changes a container in one.

    By syntax: `run.turn.reply = ...`, `turn.reply = ...`, a local name for a part, `run.turn.results.append(...)`.
    `texts` are modules to look at instead of the package's own.
    """
    parts = parts_of_a_run()
    if texts is None:
        texts = whole()
    found = []
    for label, text in sorted(texts.items()):
        if label.partition("/")[0] != OWNER:
            found += [f"{label}:{line}: {what}" for line, what in _writes(ast.parse(text), parts)]
    return found


def _writes(tree: ast.Module, parts: dict[str, frozenset[str]]) -> Iterator[tuple[int, str]]:
    known = {**parts, "_run": parts["run"]}
    for node in ast.walk(tree):  # a part under another name
        value = node.value if isinstance(node, ast.Assign) else None
        if isinstance(value, ast.Attribute) and value.attr in parts and _last(value.value) in ("run", "_run"):
            known.update({one.id: parts[value.attr] for one in node.targets if isinstance(one, ast.Name)})
    for node in ast.walk(tree):
        stored = isinstance(getattr(node, "ctx", None), ast.Store | ast.Del)
        target: ast.AST | None = None
        if isinstance(node, ast.Attribute) and stored:
            target = node
        elif isinstance(node, ast.Subscript) and stored:
            target = node.value
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in MUTATORS:
            target = node.func.value
        if isinstance(target, ast.Attribute) and target.attr in known.get(_last(target.value), ()):
            yield node.lineno, ast.unparse(target)


def unmarked_writes(texts: dict[str, str] | None = None) -> list[str]:
    """Where a part of a run writes a field that a journal keeps and does not mark it in `unsaved`, in the same method.

    `texts` are modules to look at instead of those of `run`.
    """
    from glidepath.run import PARTS
    from glidepath.sessions.state_changes import MARKED

    owners = {kind.__name__: MARKED.intersection(kind.__struct_fields__) for kind in PARTS.values()}
    parts = {part: owners[kind.__name__] for part, kind in PARTS.items()}
    if texts is None:
        texts = {label: text for label, text in whole().items() if label.partition("/")[0] == OWNER}
    found = []
    for label, text in sorted(texts.items()):
        tree = ast.parse(text)
        for owner, method in _methods(tree):
            marked = _marked_in(method)
            known = {**parts, "self": owners.get(owner, frozenset())}
            module = ast.Module(body=[method], type_ignores=[])
            for line, what in _writes(module, {**known, "run": frozenset()}):
                if what.rpartition(".")[2] not in marked:
                    found.append(f"{label}:{line}: {what}")
    return found


def _methods(tree: ast.Module) -> Iterator[tuple[str, ast.stmt]]:
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            yield from ((node.name, one) for one in node.body if isinstance(one, FUNCTIONS))
        elif isinstance(node, FUNCTIONS):
            yield "", node


def _marked_in(method: ast.stmt) -> set[str]:
    """The names that a method adds: `self.unsaved["later"] = None`."""
    return {
        str(node.slice.value)
        for node in ast.walk(method)
        if isinstance(node, ast.Subscript) and _last(node.value) == "unsaved" and isinstance(node.slice, ast.Constant)
    }


def public_names() -> list[str]:
    """The public names, each once however many modules offer it."""
    found: set[str] = set()
    for dump in sorted((ROOT / "api").glob("*.txt")):
        found |= set(importlib.import_module(dump.stem).__all__)
    return sorted(found)


class Walk(NamedTuple):
    """A walk through our code."""

    calls: int
    modules: int
    changes: int
    """Hops: how often the next call is in another file than the one before. Coming back without a call is none."""


class Tracer:
    """Follows our calls while it is `on`.

    Lines decide which modules take part: a coroutine that only waits for another is entered whenever that continues,
    and runs nothing.
    """

    def __init__(self, *, on: bool = False, until: tuple[str, str] | None = None) -> None:
        self.on = on
        self._until = until
        self._files: list[str] = []
        self._modules: set[str] = set()

    def follow(self, work: Any) -> None:
        """Run this coroutine and look where it goes; `until` a line of this function in this file has run."""
        before = sys.gettrace()
        sys.settrace(self._trace)
        try:
            asyncio.run(work)
        finally:
            sys.settrace(before)

    def _trace(self, frame: Any, event: str, _: object) -> Any:
        code = frame.f_code
        if not code.co_filename.startswith(str(PACKAGE)):
            return None
        if self.on and event == "call" and code.co_name[0] != "<":
            self._files.append(code.co_filename)
        elif self.on and event == "line":
            self._modules.add(code.co_filename)
            if self._until is not None and code.co_name == self._until[1] and code.co_filename.endswith(self._until[0]):
                self.on = False
        return self._trace

    def walk(self) -> Walk:
        """Where it went."""
        changes = sum(one != other for one, other in itertools.pairwise(self._files))
        return Walk(len(self._files), len(self._modules), changes)


def _steady_agent(heard: Any) -> Any:
    """An agent with one tool that calls it five times; `heard` is told the number of each request."""
    from glidepath import Agent, Limits, tool
    from glidepath.messages import StreamEnd, TextDelta, ToolCallDelta, Usage

    class Steady:
        name = "steady"
        max_output_tokens = 1000
        turn = 0

        async def stream(self, request: Any) -> Any:
            self.turn += 1
            heard(self.turn)
            await asyncio.sleep(0)
            yield TextDelta("Let me look. ")
            if self.turn < 6:
                yield ToolCallDelta(0, f"call_{self.turn}", "look", f'{{"n": {self.turn}}}')
            yield StreamEnd("tool_use" if self.turn < 6 else "end_turn", Usage(60 + 50 * len(request.messages), 55))

    @tool
    async def look(n: int) -> str:
        """Look."""
        return f"saw {n}"

    return Agent(model=Steady(), tools=[look], limits=Limits(max_iterations=50, max_tokens=1_000_000, timeout=60))


async def _consume(agent: Any) -> None:
    async with agent.stream("go") as stream:
        async for _ in stream:
            pass


def walk_of_a_turn(*, streamed: bool) -> Walk:
    """What a reader of a steady tool turn has to follow: our calls between two requests to the model.

    Traced on the way that every turn takes.
    """
    tracer = Tracer()

    def hear(turn: int) -> None:
        tracer.on = turn == 4

    agent = _steady_agent(hear)
    tracer.follow(_consume(agent) if streamed else agent.run("go"))
    return tracer.walk()


def walk_of_a_start() -> Walk:
    """What a reader of a start has to follow: our calls from `Agent.run` until the first line of the loop runs.

    A plain run: a prompt, limits, a tool, and nothing else. It is not the first of its process: what is made once is
    there.
    """
    asyncio.run(_steady_agent(lambda _: None).run("go"))
    tracer = Tracer(on=True, until=("kernel/loop.py", "run_loop"))
    tracer.follow(_steady_agent(lambda _: None).run("go"))
    return tracer.walk()


def branches_of(node: ast.AST) -> int:
    """Cyclomatic complexity: one, and one for each decision. A function inside counts as its own."""
    found = 1
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, (*FUNCTIONS, ast.Lambda, ast.ClassDef)):
            found += branches_of(child) - 1
    if isinstance(node, ast.If | ast.For | ast.AsyncFor | ast.While | ast.IfExp | ast.ExceptHandler | ast.match_case):
        found += 1
    elif isinstance(node, ast.BoolOp):
        found += len(node.values) - 1
    elif isinstance(node, ast.comprehension):
        found += 1 + len(node.ifs)
    return found


PARTICIPLES = frozenset(
    """beaten been begun bent bitten bled blown born borne bought bound bred broken brought built burnt caught
    chosen clung crept dealt done drawn driven dug eaten fallen fed felt fled flown forbidden forgiven forgotten
    fought found frozen given gone got gotten ground grown heard held hidden hung kept known laid lain led left
    lent lit lost made meant met mown overdue overridden paid proven rebuilt redone rewritten ridden risen rung
    said seen sent shaken shone shot shown shrunk slept slid sold sought sown spent spilt spoken
    sprung spun stolen stood stuck stung struck sung sunk swept sworn swum swung taken taught thought thrown told torn
    understood undone unseen unsent upset withdrawn withheld woken won worn woven written""".split()  # noqa: SIM905 - a list would be a page long
)
VERBS_LIKE_PARTICIPLES = frozenset(
    """become cast come cut embed exceed feed heed lead need proceed put read seed set shed shut speed split
    succeed""".split()  # noqa: SIM905
)
"""Words that are a verb in this form as well, as in `read_file`, `put` and `need_key`."""


def is_participle(word: str) -> bool:
    """True for a word such as `told`, `heard` or `checked`: what a function is not named by."""
    if word in VERBS_LIKE_PARTICIPLES:
        return False
    return word in PARTICIPLES or (word.endswith("ed") and len(word) > len("need"))


def functions_named_by_participles(texts: dict[str, str] | None = None) -> tuple[int, list[str]]:
    """How many functions there are, and those whose name begins with a participle.

    Properties, public names and what begins with two underscores are not looked at: a property is a value, and the
    others are what somebody else calls.
    """
    public = _public_members() if texts is None else frozenset()
    every, found = 0, []
    for label, text in sorted((whole() if texts is None else texts).items()):
        for owner, node in _functions_with_owner(ast.parse(text)):
            kinds = {_last(one) or _last(getattr(one, "func", one)) for one in node.decorator_list}
            if node.name.startswith("__") or kinds & {"property", "cached_property", "setter"}:
                continue
            every += 1
            word = node.name.strip("_").partition("_")[0]
            if is_participle(word) and (owner, node.name) not in public:
                found.append(f"{label}:{node.lineno}: {node.name}")
    return every, found


def _functions_with_owner(tree: ast.AST, owner: str = "") -> Iterator[tuple[str, Any]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, FUNCTIONS):
            yield owner, node
        yield from _functions_with_owner(node, node.name if isinstance(node, ast.ClassDef) else owner)


def _public_members() -> frozenset[tuple[str, str]]:
    """Class and method, or nothing and function, of every line of the surface in `api/`."""
    found, owner = set(), ""
    for dump in sorted((ROOT / "api").glob("*.txt")):
        for line in dump.read_text(encoding="utf-8").splitlines():
            word = re.match(r"(?: {4})?(?:class |async def |def )?(\w+)", line)
            if word and line.startswith("class "):
                owner = word[1]
            elif word:
                found.add((owner if line.startswith("    ") else "", word[1]))
    return frozenset(found)


def participle_share() -> float:
    """Percent of the functions whose name begins with a participle."""
    every, found = functions_named_by_participles()
    return round(100 * len(found) / every, 2)


LOOSE = frozenset(("__init__.py", "__main__.py", "_version.py"))


def top_level() -> tuple[list[str], list[str], list[str]]:
    """What `ls src/glidepath` shows: packages, loose modules, and facades at the paths that users import."""
    packages, modules, facades = [], [], []
    for path in sorted(PACKAGE.iterdir()):
        if path.is_dir() and (path / "__init__.py").exists():
            inside = [one for one in path.rglob("*.py") if not is_facade(one)]
            (packages if inside else facades).append(path.name)
        elif path.suffix == ".py" and path.name not in LOOSE:
            (facades if is_facade(path) else modules).append(path.name)
    return packages, modules, facades


def is_facade(path: Path) -> bool:
    """True for a module that only re-exports: a docstring, imports, `__all__`, and names that are imported late."""
    return all(_is_re_export(node) for node in ast.parse(path.read_text(encoding="utf-8")).body)


def _is_re_export(node: ast.stmt) -> bool:
    if isinstance(node, ast.If):
        test = ast.unparse(node.test)
        if test == "__name__ == '__main__'":
            return [ast.unparse(one) for one in node.body] == ["sys.exit(main())"]
        return test in ("TYPE_CHECKING", "not TYPE_CHECKING") and all(map(_is_re_export, node.body)) and not node.orelse
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    if isinstance(node, ast.Assign):
        name = ast.unparse(node.targets[0])
        lazily = isinstance(node.value, ast.Call) and _last(node.value.func) == "lazy_attributes"
        return (name == "__all__" and isinstance(node.value, ast.List)) or (name == "__getattr__" and lazily)
    return isinstance(node, ast.Import | ast.ImportFrom)


def inside_imports(texts: dict[str, str] | None = None) -> list[str]:
    """Names that a package imports from inside another one, past its facade: one line for each name and importer.

    `glidepath.sessions` is a package's facade, `glidepath.sessions.archive` is inside.
    """
    found = []
    facades = top_level()[2]
    for label, text in sorted((whole() if texts is None else texts).items()):
        here = label.partition("/")[0]
        if here in facades:
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("glidepath."):
                parts = node.module.split(".")
                if len(parts) > len(("glidepath", "package")) and parts[1] != here and "/" in label:
                    found += [f"{label}: {node.module}.{one.name}" for one in node.names]
    return found


def count_tests_of_internals(texts: dict[str, str] | None = None) -> tuple[int, list[str]]:
    """How many files `tests` has, and those that import from a module which is neither public nor a package's facade.

    Public is what has a dump in `api/`, and the paths beside the packages that only re-export. A facade is the
    `__init__` of any package of ours, whatever names it offers; a module that is imported through it, as in
    `from glidepath.sessions import archive`, is inside all the same. Imports in functions count, and so does a test of
    the module itself.
    """
    if texts is None:
        folder = ROOT / "tests"
        texts = {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in folder.rglob("*.py")}
    open_to_all = {dump.stem for dump in (ROOT / "api").glob("*.txt")}
    open_to_all |= {f"glidepath.{path.stem}" for path in PACKAGE.glob("[!_]*.py")}
    open_to_all |= {_module_of(path.parent) for path in PACKAGE.rglob("__init__.py")}
    modules = {_module_of(path.with_suffix("")) for path in PACKAGE.rglob("*.py")}
    found = []
    for label, text in sorted(texts.items()):
        names = set()
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names |= {node.module} | {f"{node.module}.{one.name}" for one in node.names}
            elif isinstance(node, ast.Import):
                names |= {one.name for one in node.names}
        inside = names & modules - open_to_all
        if inside:
            found.append(f"{label}: {', '.join(sorted(inside))}")
    return len(texts), found


def _module_of(path: Path) -> str:
    return ".".join(path.relative_to(PACKAGE.parent).parts)


def facade_names_of_modules() -> list[str]:
    """Names that a facade offers and that a module or package below it has, too: which one is found depends on luck."""
    found = []
    for path in PACKAGE.rglob("__init__.py"):
        below = {one.stem for one in path.parent.iterdir() if one.name != path.name}
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module and node.module != _module_of(path.parent):
                here = {one.asname or one.name for one in node.names} & below
                found += [f"{_module_of(path.parent)}.{name}" for name in sorted(here)]
    return found


def measure() -> dict[str, Any]:
    """Every figure, by name."""
    every, bare = parameters()
    classes, modules = repeated_names()
    public = public_parameters_of_any()
    return {
        "lines": lines_by_package(),
        "parameters": every,
        "bare Any parameters": len(bare),
        "bare Any parameters, percent": round(100 * len(bare) / every, 2),
        "public parameters of bare Any": public,
        "fields of Run": run_fields(),
        "writes to a run's state by others": foreign_writes(),
        "public class names used twice": classes,
        "module names used twice": modules,
        "the start of a run": walk_of_a_start()._asdict(),
        "a tool turn": walk_of_a_turn(streamed=False)._asdict(),
        "a tool turn, streamed": walk_of_a_turn(streamed=True)._asdict(),
        "public names": len(public_names()),
        "names imported from inside other packages": len(inside_imports()),
        "test files that import internals": len(count_tests_of_internals()[1]),
        "functions named by a participle, percent": participle_share(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    found = measure()
    if parser.parse_args().json:
        print(json.dumps(found, indent=1))
        return
    for name, value in found.items():
        shown = f"{len(value)}: {', '.join(value)}" if isinstance(value, list) else value
        print(f"{name:<42} {shown}")


if __name__ == "__main__":
    main()
