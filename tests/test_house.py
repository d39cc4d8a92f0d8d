"""The house rules that a machine can check, each with the mistake it prevents: one that was made, here or elsewhere."""

import ast
import asyncio
import json
import os
import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from glidepath.outcome import Snapshot
from glidepath.run import KEPT, PARTS

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "glidepath"
LOOP = PACKAGE / "kernel" / "loop.py"

MAX_LOOP_LINES = 80
MAX_LOOP_NESTING = 3
MAX_FILE_LINES = 600
MAX_FUNCTION_LINES = 60

MAX_DECISIONS = 30

VENDORS = ("anthropic", "azure", "bedrock", "claude", "gemini", "google", "gpt", "llama", "mistral", "openai")
NOT_AT_IMPORT = (
    "anthropic",
    "asyncpg",
    "concurrent.futures.process",
    "dbos",
    "google.genai",
    "multiprocessing",
    "openai",
    "opentelemetry",
    "pydantic",
    "sqlalchemy",
    "sqlite3",
    "stamina",
)

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
COMPOUND = (
    ast.If,
    ast.For,
    ast.AsyncFor,
    ast.While,
    ast.Try,
    ast.TryStar,
    ast.With,
    ast.AsyncWith,
    ast.Match,
    ast.FunctionDef,
    ast.AsyncFunctionDef,
    ast.ClassDef,
)


def sources() -> list[Path]:
    found = sorted(PACKAGE.rglob("*.py"))
    assert found, f"no source files under {PACKAGE}"
    return found


def label(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def functions(tree: ast.AST, prefix: str = "") -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for node in ast.iter_child_nodes(tree):
        named = isinstance(node, (*FUNCTIONS, ast.ClassDef))
        name = f"{prefix}{node.name}" if named else prefix
        if isinstance(node, FUNCTIONS):
            yield name, node
        yield from functions(node, f"{name}." if named else prefix)


def nesting(node: ast.AST) -> int:
    """Depth of compound statements below `node`.

    Counted: if, for, while, try, with, match, and a def or class inside a function. One level each, however many
    branches: `elif`, `else`, `except`, `finally` and `case` add nothing. Expressions are not counted.
    """
    return max((is_level(node, child) + nesting(child) for child in ast.iter_child_nodes(node)), default=0)


def is_level(parent: ast.AST, node: ast.AST) -> bool:
    # In the tree an `elif` is an `if` inside the else branch; only its column tells it from `else:` + `if`.
    elif_branch = isinstance(parent, ast.If) and node in parent.orelse and node.col_offset == parent.col_offset
    return isinstance(node, COMPOUND) and not elif_branch


def imported(tree: ast.AST) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names.add(node.module)
    return names


def top_level(names: set[str]) -> set[str]:
    return {name.partition(".")[0] for name in names}


def run(*command: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    # Without the coverage variables: a measured child would import sqlite3 by itself.
    env = {key: value for key, value in os.environ.items() if not key.startswith("COV")}
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False, timeout=120)


def test_the_import_contracts_are_kept():
    """Prevents circles: a kernel that imports the command line can be neither read nor shipped without it."""
    done = run(sys.executable, "-c", "from importlinter.cli import lint_imports_command as f; f()", cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_loop_fits_on_one_page():
    """Prevents the rot of other agent libraries: a loop of one screen grew to 1,500 lines in a year and a half."""
    lines = LOOP.read_text(encoding="utf-8").splitlines()
    assert len(lines) <= MAX_LOOP_LINES


def test_the_loop_is_never_nested_deeper_than_three():
    """Prevents cases inside cases: the fourth level is a phase that wants a name of its own."""
    depths = {name: nesting(node) for name, node in functions(ast.parse(LOOP.read_text(encoding="utf-8")))}
    assert depths, "loop.py has no function"
    assert {name: depth for name, depth in depths.items() if depth > MAX_LOOP_NESTING} == {}


def test_the_loop_knows_no_logger_no_types_of_plugins_and_no_vendor():
    """Prevents special cases in the loop: each of them holds for one plugin or vendor and is paid by all."""
    text = LOOP.read_text(encoding="utf-8")
    assert "logging" not in top_level(imported(ast.parse(text)))
    assert "isinstance(" not in text
    assert [vendor for vendor in VENDORS if vendor in text.lower()] == []


@pytest.mark.process
def test_importing_glidepath_imports_nothing_heavy(tmp_path):
    """Prevents a start of seconds: one import of an SDK at the top of a module, and every command waits for it."""
    code = "import json, sys, glidepath; assert glidepath.__file__; print(json.dumps(sorted(sys.modules)))"
    done = run(sys.executable, "-c", code, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    loaded = json.loads(done.stdout)
    heavy = [name for name in loaded if any(name == bad or name.startswith(f"{bad}.") for bad in NOT_AT_IMPORT)]
    assert heavy == []


def test_only_wire_imports_msgspec():
    """Prevents a second way to write values: a field that one module writes and another cannot read."""
    users = [label(path) for path in sources() if "msgspec" in top_level(imported(ast.parse(path.read_text("utf-8"))))]
    assert [name for name in users if name != "_wire.py"] == []


def test_no_file_is_too_long():
    """Prevents the file that nobody has read to its end, where the same thing is then written a second time."""
    lengths = {label(path): len(path.read_text(encoding="utf-8").splitlines()) for path in sources()}
    assert {name: length for name, length in lengths.items() if length > MAX_FILE_LINES} == {}


def test_no_function_is_too_long():
    """Prevents a function whose end hides from its beginning. There is no list of exceptions: it held the worst one."""
    long = {}
    for path in sources():
        for name, node in functions(ast.parse(path.read_text(encoding="utf-8"))):
            length = node.end_lineno - node.lineno + 1  # docstring included, decorators not
            if length > MAX_FUNCTION_LINES:
                long[f"{label(path)}:{name}"] = length
    assert long == {}


def test_no_function_has_too_many_decisions():
    """Prevents more ways through a function than a person keeps in mind and tests try."""
    found = {}
    for path in sources():
        for name, node in functions(ast.parse(path.read_text(encoding="utf-8"))):
            if (decisions := house["branches_of"](node)) > MAX_DECISIONS:
                found[f"{label(path)}:{name}"] = decisions
    assert found == {}


@pytest.mark.parametrize(
    ("body", "depth"),
    [
        ("pass", 0),
        ("if a:\n  pass\n elif b:\n  pass\n else:\n  pass", 1),
        ("if a:\n  pass\n else:\n  if b:\n   pass", 2),
        ("try:\n  pass\n except E:\n  with a:\n   pass", 2),
        ("while a:\n  async for b in c:\n   try:\n    pass\n   finally:\n    if d:\n     pass", 4),
        ("def inner():\n  if a:\n   pass", 2),
    ],
)
def test_nesting_is_counted_as_documented(body, depth):
    """Checks the check."""
    [(_, node)] = [found for found in functions(ast.parse(f"async def f():\n {body}")) if found[0] == "f"]
    assert nesting(node) == depth


MOST_FIELDS_OF_RUN = 20
LONGEST_WALK = {"run": (85, 23, 60), "stream": (105, 23, 76)}
"""Calls, modules and changes of file of a steady tool turn. A stream has its consumer's own steps in between."""
MOST_HOPS_OF_A_START = 30
MOST_MODULE_NAMES_TWICE = 5
MOST_BARE_ANY = 0.02
"""The share of parameters whose type is a bare `Any`."""
house = runpy.run_path(str(ROOT / "scripts" / "measure_house.py"))


def test_a_run_is_a_few_parts():
    """Prevents a run of sixty loose fields, of which nobody knows which belong together."""
    assert house["run_fields"]() <= MOST_FIELDS_OF_RUN


@pytest.mark.parametrize("way", LONGEST_WALK)
def test_a_tool_turn_is_a_short_walk(way):
    """Prevents wrappers: whoever reads a turn follows these calls, in this many files.

    There is no shorter way beside it: a second form of the turn ignored a rule that the first one obeyed.
    """
    walk = house["walk_of_a_turn"](streamed=way == "stream")
    calls, modules, changes = LONGEST_WALK[way]
    assert walk.calls <= calls
    assert walk.modules <= modules
    assert walk.changes <= changes


def test_a_plain_run_starts_after_a_short_walk():
    """Prevents a start that nobody can follow: it took 64 hops, from `Agent.run` to the first line of the loop.

    A hop: the next call is in another file than the one before.

    What a plain run does not have, sources, a store, a budget, a parent, an earlier part, is not asked about in a
    function of its own: it is a branch, which this walk does not enter.
    """
    walk = house["walk_of_a_start"]()
    assert walk.calls > 30  # it was followed
    assert walk.changes <= MOST_HOPS_OF_A_START


def test_a_public_class_name_is_unique_and_so_is_nearly_every_module_name():
    """Prevents two things of one name: a reader who searches for it finds the wrong one."""
    classes, modules = house["repeated_names"]()
    # `glidepath.gate.Gate` is what agents point at, `spi.Gate` what a tool gate decides: both are public names.
    assert classes == ["Gate"]
    assert len(modules) <= MOST_MODULE_NAMES_TWICE, modules


def test_few_parameters_are_of_any_type():
    """Prevents types that check nothing: a bare `Any` lets a wrong argument through to a run that costs money."""
    every, bare = house["parameters"]()
    assert len(bare) <= MOST_BARE_ANY * every, bare


def test_no_public_parameter_is_of_any_type():
    """Prevents a user's mistake that only the run reports, when an editor could have."""
    assert house["public_parameters_of_any"]() == []


@pytest.mark.parametrize(
    "text",
    [
        "def f(a: Any): ...",
        "def f(*a: Any): ...",
        "def f(*, a: typing.Any): ...",
        "def f(a: 'Any'): ...",
        "def f(a: Any | None): ...",
        "Thing = Any\ndef f(a: Thing): ...",
        "Thing: TypeAlias = Any\ndef f(a: Thing): ...",
        "from typing import Any as Thing\ndef f(a: Thing): ...",
    ],
)
def test_any_is_counted_by_whatever_name(text):
    """Checks the check."""
    every, bare = house["parameters"]({"here.py": text})
    assert (every, len(bare)) == (1, 1)


@pytest.mark.parametrize("text", ["def f(a: object): ...", "def f(a: dict[str, Any]): ...", "def f(self, a: int): ..."])
def test_another_type_is_not_counted_as_any(text):
    """Checks the check."""
    assert house["parameters"]({"here.py": text}) == (1, [])


def test_every_part_of_a_run_is_written_by_its_owner_only():
    """Prevents state that anybody changes: "who set this?" must be answered in one package."""
    assert house["foreign_writes"]() == []


@pytest.mark.parametrize(
    "line",
    [
        "run.plan = plan",
        "run.turn.reply = None",
        "self._run.turn.iterations += 1",
        "turn = run.turn\nturn.reply = None",
        "state = run.turn\nstate.reply = None",
        "before, run.spend.account = 1, 2",
        "run.transcript.messages.append(1)",
        "run.turn.denials['look'] = 'no'",
        "del run.transcript.view[-1]",
        "run.meter.tokens += 1",
        "run.watch.consumer = None",
    ],
)
def test_a_write_from_elsewhere_is_noticed(line):
    """Checks the check."""
    assert len(house["foreign_writes"]({"ask/here.py": line})) == 1
    assert house["foreign_writes"]({"run/here.py": line}) == []


def test_every_part_of_a_run_marks_what_a_journal_must_write():
    """Prevents a change that no commit has: after a crash the run would continue with the old value."""
    assert house["unmarked_writes"]() == []


@pytest.mark.parametrize(
    ("line", "is_marked"),
    [
        ("self.later += (1,)", False),
        ("self.later += (1,); self.unsaved['waiting'] = None", False),
        ("self.later += (1,); self.unsaved['later'] = None", True),
        ("self.later, self.waiting = (), (); self.unsaved['later'] = self.unsaved['waiting'] = None", True),
        ("self.sizes = []", True),
        ("run.audit.violations.append(1)", False),
        ("turn = run.turn; turn.pending = ()", False),
    ],
)
def test_a_write_without_a_mark_is_noticed(line, is_marked):
    """Checks the check."""
    text = f"class Transcript:\n    def change(self, run): {line}\n"
    assert (house["unmarked_writes"]({"run/here.py": text}) == []) is is_marked


@pytest.mark.parametrize("line", ["reply = run.turn.reply", "self.turn = 3", "run.turn.begin()", "job.turn = run.turn"])
def test_reading_a_part_and_asking_its_owner_are_fine(line):
    """Checks the check."""
    assert house["foreign_writes"]({"ask/here.py": line}) == []


def test_every_field_of_a_snapshot_is_a_part_of_the_run_or_a_figure_of_its_own():
    """Prevents a field that survives in one place only: restored and never taken, or taken and never restored."""
    kept = [name for names in KEPT.values() for name in names]
    figures = {"run_id", "elapsed", "next_event", "spent", "fallbacks_spent", "children_spent", "turns"}
    figures |= {
        "metered_tool_calls",
        "descendants",
        "tokens",
        "picodollars",
        "disputed",
        "on_budget",
        "guards",
    }
    ended = {"state", "outcome", "cause", "partial"}
    assert len(kept) == len(set(kept))
    assert {*kept, *figures, *ended} == set(Snapshot.__struct_fields__)
    for part, names in KEPT.items():
        assert set(names) <= set(PARTS[part].__struct_fields__)


def test_what_is_written_from_the_declarations_of_settings_is_up_to_date():
    """Prevents a setting that editors, files or flags do not know: their text is made, not written."""
    made = runpy.run_path(str(ROOT / "scripts" / "make_keywords.py"))["texts"]()
    stale = [path.name for path, text in made.items() if path.read_text(encoding="utf-8") != text]
    assert stale == [], "run scripts/make_keywords.py"


def test_the_quick_target_names_the_kernels_tests():
    """Prevents a quick target that says "passed" because the folders it names have moved."""
    shown = subprocess.run(["make", "-n", "quick"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    named = [word for word in shown.split() if word.startswith("tests/")]
    assert {"tests/loop", "tests/run", "tests/ledger"} <= set(named)
    assert all((ROOT / word).exists() for word in named)


PRIVATE = frozenset(
    name
    for thing in (
        asyncio,
        asyncio.BaseEventLoop,
        asyncio.Future,
        asyncio.Runner,
        asyncio.Task,
        asyncio.TaskGroup,
        asyncio.Timeout,
    )
    for name in (*dir(thing), "_transport", "_task", "_parent_task", "_interrupt_count")
    if name.startswith("_") and not name.startswith("__")
)
DOCUMENTED = {"_asyncio_future_blocking", "_get_running_loop", "_unregister_task"}  # on the pages of asyncio itself


def lookups(tree: ast.AST) -> Iterator[tuple[int, ast.expr, str]]:
    """Every attribute that is looked up or set, with its owner: `x.name`, `getattr(x, "name")`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            yield node.lineno, node.value, node.attr
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and len(node.args) > 1:
            name = getattr(node.args[1], "value", None)
            if node.func.id in ("getattr", "setattr", "hasattr", "delattr") and isinstance(name, str):
                yield node.lineno, node.args[0], name


def test_only_one_module_looks_at_private_parts_of_asyncio():
    """Prevents surprises of a new Python: what is not documented is looked up in one module, which is tested."""
    found = []
    for path in sources():
        if label(path) == "run/asyncio_privates.py":
            continue
        for line, owner, name in lookups(ast.parse(path.read_text(encoding="utf-8"))):
            own = isinstance(owner, ast.Name) and owner.id in ("self", "cls")
            if name in PRIVATE - DOCUMENTED and not own:
                found.append(f"{label(path)}:{line}: {name}")
    assert found == []


PRIVATES = ("_sdk_privates.py", "run/asyncio_privates.py")
STANDARD = {"_getframe", "_value_"}  # documented
STANDARD |= {"_SubParsersAction", "_actions", "_choices_actions"}  # argparse tells its commands and flags to nobody


def ours(tree: ast.AST) -> set[str]:
    """Names that our own code gives to attributes and module variables."""
    named = {node.name for node in ast.walk(tree) if isinstance(node, (*FUNCTIONS, ast.ClassDef))}
    stored = [node for node in ast.walk(tree) if isinstance(getattr(node, "ctx", None), ast.Store)]
    named |= {node.id for node in stored if isinstance(node, ast.Name)}
    named |= {node.attr for node in stored if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "self"}
    for node in ast.walk(tree):  # slots, and the bodies of classes made by `type`
        body = isinstance(node, ast.Dict) and any(getattr(key, "value", None) == "__doc__" for key in node.keys)
        if body or (isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__slots__"):
            named |= {one.value for one in ast.walk(node) if isinstance(one, ast.Constant)}
    return named


def foreign_privates(texts: dict[str, str]) -> list[str]:
    """Where a module looks at a private part that nothing of ours has, or imports a private module of others."""
    trees = {name: ast.parse(text) for name, text in texts.items()}
    known = set().union(*[ours(tree) for tree in trees.values()]) | DOCUMENTED | STANDARD
    found = []
    for name, tree in trees.items():
        if name not in PRIVATES:
            for line, owner, part in lookups(tree):
                self = isinstance(owner, ast.Name) and owner.id in ("self", "cls")
                if part.startswith("_") and not part.startswith("__") and part not in known and not self:
                    found.append(f"{name}:{line}: {part}")
            modules = {word for word in imported(tree) if not word.startswith(("glidepath", "_"))}
            found += [f"{name}: {module}" for module in sorted(modules) if "._" in module]
    return found


def test_only_one_module_looks_at_private_parts_of_an_sdk():
    """Prevents surprises of a new SDK, as the rule about asyncio does."""
    assert foreign_privates({label(path): path.read_text(encoding="utf-8") for path in sources()}) == []


@pytest.mark.parametrize(
    "text", ["client._api_client", 'getattr(client, "_api_client", 0)', "from sdk._base import x", "sdk._state = 1"]
)
def test_a_private_part_of_an_sdk_is_found(text):
    """Checks the check."""
    own = "class Own:\n    def __init__(self):\n        self._mine = 1\n\nOwn()._mine\n"
    assert foreign_privates({"own.py": own}) == []
    assert len(foreign_privates({"own.py": own, "other.py": text})) == 1


def test_a_private_part_that_is_known_is_looked_up_in_its_module_only():
    """Prevents a second place that must be mended when an SDK changes."""
    mine = ast.parse((PACKAGE / "_sdk_privates.py").read_text(encoding="utf-8"))
    parts = {part for _, _, part in lookups(mine) if part.startswith("_") and not part.startswith("__")}
    assert {"_platform", "_api_client", "_http_options", "_dbos_global_instance", "_launched", "_queue"} <= parts
    taken = {"_launched", "_queue", "_shutdown"}  # also names of our own
    found = []
    for path in sources():
        if label(path) != "_sdk_privates.py":
            tree = ast.parse(path.read_text(encoding="utf-8"))
            found += [f"{label(path)}:{line}: {part}" for line, _, part in lookups(tree) if part in parts - taken]
    assert found == []


def test_every_rule_says_which_mistake_it_prevents():
    """Prevents rules for their own sake: a ceiling that nobody could justify made the code worse, and was obeyed."""
    rules = {name: one.__doc__ or "" for name, one in globals().items() if name.startswith("test_")}
    assert [name for name, said in rules.items() if not said.startswith(("Prevents ", "Checks the check."))] == []


MOST_PACKAGES = 15
MOST_LOOSE_MODULES = 4
MOST_INSIDE_IMPORTS = 300
MOST_TESTS_OF_INTERNALS = 120
MOST_PARTICIPLES = 1.5
"""Percent of the functions."""
SHORT_FORMS = ("the same in short", "second form", "see `cruise`")


def test_the_first_screen_shows_the_architecture():
    """Prevents a first screen that tells a stranger nothing: there were 55 names on one level."""
    packages, modules, _ = house["top_level"]()
    assert len(packages) <= MOST_PACKAGES, packages
    assert len(modules) <= MOST_LOOSE_MODULES, modules


def test_what_users_import_from_an_old_path_only_re_exports():
    """Prevents a facade with code in it: a second place for what its package does."""
    _, _, facades = house["top_level"]()
    assert {"errors.py", "events.py", "serve", "sim", "otel.py", "conformance", "engines"} <= set(facades)


@pytest.mark.parametrize(
    "text",
    [
        "def f():\n    pass\n",
        "from glidepath.values.errors import ToolError\n\nERRORS = (ToolError,)\n",
        "class Own:\n    pass\n",
        "__getattr__ = find\n",
    ],
)
def test_a_facade_with_code_is_found(text, tmp_path):
    """Checks the check."""
    (tmp_path / "own.py").write_text(text, encoding="utf-8")
    assert not house["is_facade"](tmp_path / "own.py")


def test_a_package_is_imported_through_its_facade(capsys):
    """Prevents packages that cannot be changed alone: 1,009 names were taken from inside others."""
    found = house["inside_imports"]()
    with capsys.disabled():
        print(f" {len(found)} names are imported from inside other packages ", end="")
    assert len(found) <= MOST_INSIDE_IMPORTS


def test_a_name_from_inside_another_package_is_counted():
    """Checks the check."""
    texts = {"apps/here.py": "from glidepath.sessions.archive import a, b", "sessions/here.py": "import glidepath"}
    assert len(house["inside_imports"](texts)) == 2
    assert house["inside_imports"]({"apps/here.py": "from glidepath.sessions import a"}) == []
    assert house["inside_imports"]({"sessions/here.py": "from glidepath.sessions.archive import a"}) == []


def test_a_facade_has_no_name_of_a_module_below_it():
    """Prevents an import that gives a function or a module of the same name, whichever was imported first."""
    assert house["facade_names_of_modules"]() == []


def test_few_tests_import_internals(capsys):
    """Prevents tests that break when a module is renamed: 289 of 486 files named modules which nobody else may name."""
    every, found = house["count_tests_of_internals"]()
    with capsys.disabled():
        print(f" {len(found)} of {every} test files import internals ", end="")
    assert len(found) <= MOST_TESTS_OF_INTERNALS, found


@pytest.mark.parametrize(
    "line",
    [
        "from glidepath.sessions.archive import stop",
        "from glidepath.sessions import archive",
        "from glidepath import _wire",
        "import glidepath.run.watch",
        "def f():\n    from glidepath.run.watch import Watch",
    ],
)
def test_a_test_of_internals_is_found(line):
    """Checks the check."""
    assert len(house["count_tests_of_internals"]({"tests/test_here.py": line})[1]) == 1


@pytest.mark.parametrize(
    "line",
    [
        "from glidepath import Agent, errors",
        "from glidepath.errors import ToolError",
        "from glidepath.sessions import MemoryStore, read_journal",
        "from glidepath.agent.replay import replay",
        "from glidepath.apps.cli import CliContext",
        "import glidepath.mcp",
    ],
)
def test_a_test_of_public_names_and_facades_is_not_counted(line):
    """Checks the check."""
    assert house["count_tests_of_internals"]({"tests/test_here.py": line}) == (1, [])


def test_a_function_is_named_by_a_verb():
    """Prevents names that need a dictionary: `told`, `heard`, `kept` say nothing of what such a function does."""
    every, found = house["functions_named_by_participles"]()
    assert len(found) <= MOST_PARTICIPLES / 100 * every, found


@pytest.mark.parametrize("name", ["told", "_heard", "checked_int", "kept_by", "written", "found", "left"])
def test_a_participle_is_found(name):
    """Checks the check."""
    assert len(house["functions_named_by_participles"]({"here.py": f"def {name}(): ..."})[1]) == 1


@pytest.mark.parametrize("name", ["tell", "read_file", "put", "is_kept", "need", "feed", "set_up", "embed"])
def test_a_verb_is_not_taken_for_a_participle(name):
    """Checks the check."""
    assert house["functions_named_by_participles"]({"here.py": f"def {name}(): ..."}) == (1, [])


def test_a_property_may_be_a_participle():
    """Checks the check."""
    text = "class A:\n    @property\n    def told(self): ...\n"
    assert house["functions_named_by_participles"]({"here.py": text}) == (0, [])


def test_nothing_says_that_it_is_the_same_again():
    """Prevents two forms of one rule: they drift apart, and 8,379 random flights did not notice."""
    found = [label(path) for path in sources() if any(one in path.read_text("utf-8").lower() for one in SHORT_FORMS)]
    assert found == []
