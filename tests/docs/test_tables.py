"""The tables of the documentation say what the code says."""

import importlib.util
import re

import pytest
from tests.interleavings.examinations import EXAMINATIONS
from tests.interleavings.planted import BUGS

from glidepath import AgentState, GuardrailsConfig, Limits, LoopConfig, LoopOutcome
from glidepath.outcome import PROTOCOL_STOPS, ResourceAction
from glidepath.tools.options import _DEFAULTS as TOOL_OPTIONS
from glidepath.values import ENDINGS, EVENTS, Passed, settings_of

from .pages import ROOT, code, name, pages, table, tables

DOCS = ROOT / "docs"


def script(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def event_table_script():
    return script("make_event_table")


def test_the_event_tables_are_up_to_date():
    page = (DOCS / "events.md").read_text(encoding="utf-8")
    assert event_table_script().updated(page) == page, "run scripts/make_event_table.py"


def hook_reference_script():
    return script("make_hook_reference")


def test_the_hook_reference_is_up_to_date():
    page = (DOCS / "hooks.md").read_text(encoding="utf-8")
    assert hook_reference_script().updated(page) == page, "run scripts/make_hook_reference.py"


def test_the_tables_of_roles_are_up_to_date():
    page = (DOCS / "server.md").read_text(encoding="utf-8")
    assert script("make_roles_table").updated(page) == page, "run scripts/make_roles_table.py"


def test_what_was_tried_in_every_order_is_up_to_date():
    page = (DOCS / "every-interleaving.md").read_text(encoding="utf-8")
    assert script("make_interleavings").updated(page) == page, "run scripts/make_interleavings.py"


def test_the_page_has_every_examination_and_every_planted_bug():
    page = (DOCS / "every-interleaving.md").read_text(encoding="utf-8")
    tried = [row[0] for row in table(DOCS / "every-interleaving.md", "what", "bound", "tried", "seconds")]
    assert tried == [one.name for one in EXAMINATIONS], "run scripts/make_interleavings.py --measure"
    missing = [bug.what for bug in BUGS if f"| {bug.what} |" not in page]
    assert missing == [], "run scripts/make_interleavings.py --measure-bugs"


def test_the_page_of_contracts_is_up_to_date():
    made = script("make_contracts").page()
    assert (DOCS / "contracts.md").read_text(encoding="utf-8") == made, "run scripts/make_contracts.py"


def test_the_fields_a_child_does_not_inherit_are_listed():
    rows = table(DOCS / "the-builder.md", "field", "inherited")
    listed = {field: row[1].split(":")[0] for row in rows for field in re.findall(r"`(\w+)`", row[0])}
    assert listed == {
        field: one.inherited.value for field, one in settings_of(LoopConfig).items() if one.inherited is not Passed.YES
    }


def test_the_events_called_not_emitted_are_those_nothing_emits():
    sources = [path.read_text(encoding="utf-8") for path in (ROOT / "src" / "glidepath").rglob("*.py")]
    emitted = {
        kind.__name__
        for kind in EVENTS
        if any(re.search(rf"emit\(\s*{kind.__name__}\b|\b{kind.__name__}\((?:run|self\.run)", text) for text in sources)
    }
    assert {kind.__name__ for kind in EVENTS} - emitted == event_table_script().NOT_YET


@pytest.mark.parametrize("kind", [LoopConfig, Limits, GuardrailsConfig], ids=lambda kind: kind.__name__)
def test_every_setting_is_listed_with_its_default(kind):
    text = (DOCS / "configuration.md").read_text(encoding="utf-8")
    section = text.partition(f"\n## {kind.__name__}\n")[2].partition("\n## ")[0]
    rows = [line.split(" | ") for line in section.splitlines() if line.startswith("| `")]
    listed = {code(row[0].removeprefix("| ")): row[1] for row in rows}
    defaults = dict(zip(reversed(kind.__struct_fields__), reversed(kind.__struct_defaults__), strict=False))
    expected = {field: f"`{shown(defaults[field])}`" if field in defaults else "required" for field in listed}
    assert list(listed) == list(kind.__struct_fields__)
    assert listed == expected


def shown(default):
    value = getattr(default, "factory", lambda: default)()
    if isinstance(value, Limits | GuardrailsConfig):
        assert value == type(value)()
        return f"{type(value).__name__}()"
    return str(value) if type(value).__module__.startswith("glidepath") else repr(value)


def test_the_agent_takes_exactly_what_is_listed():
    listed = [code(row[0]) for row in tables(DOCS / "configuration.md")[0][1:]]
    assert listed == list(LoopConfig.__struct_fields__)


def test_every_ending_is_listed_with_its_word_in_each_protocol():
    rows = table(DOCS / "how-a-run-ends.md", "state", "outcome", "when", "ACP", "A2A", "AG-UI")
    listed = {
        (AgentState[code(state)], LoopOutcome[code(outcome)]): {
            "acp": code(acp),
            "a2a": code(a2a),
            "ag_ui": code(ag_ui),
        }
        for state, outcome, _when, acp, a2a, ag_ui in rows
    }
    assert len(listed) == len(rows)
    assert set(listed) == set(ENDINGS)
    assert listed == {ending: dict(words) for ending, words in PROTOCOL_STOPS.items()}


def test_every_outcome_is_explained():
    rows = table(DOCS / "how-a-run-ends.md", "outcome", "you have")
    assert [code(row[0]) for row in rows] == [outcome.name for outcome in LoopOutcome]


def test_every_tool_option_is_listed_with_its_default():
    rows = table(DOCS / "writing-a-tool.md", "option", "default", "meaning")
    assert {code(option): code(default) for option, default, _ in rows} == {
        option: repr(default) for option, default in TOOL_OPTIONS.items()
    }


def test_every_action_is_listed_with_its_severity():
    rows = table(DOCS / "writing-a-constraint.md", "action", "severity", "what happens")
    assert {code(action): int(severity) for action, severity, _ in rows} == {
        action.name: action.severity for action in ResourceAction
    }


def test_every_timeout_is_listed_with_its_default():
    rows = table(DOCS / "retries-and-timeouts.md", "setting", "default", "bounds")
    listed = {code(setting): default for setting, default, _ in rows}
    defaults = dict(zip(reversed(LoopConfig.__struct_fields__), reversed(LoopConfig.__struct_defaults__), strict=False))
    defaults |= {"Limits.timeout": Limits().timeout, "Limits.landing_seconds": Limits().landing_seconds}
    assert listed == {setting: "none" if defaults[setting] is None else str(defaults[setting]) for setting in listed}
    assert {field for field in LoopConfig.__struct_fields__ if field.endswith("_timeout")} <= set(listed)


def test_the_house_tour_gives_every_module_a_row():
    rows = table(DOCS / "house-tour.md", "row", "what it is")
    listed = [word for row in rows for word in re.findall(r"`(\w+)`", row[0])]
    package = [path.stem for path in (ROOT / "src" / "glidepath").iterdir() if path.suffix in {"", ".py"}]
    assert sorted(listed) == sorted(set(package) - {"__init__", "__pycache__"})


def test_every_file_and_name_the_house_tour_points_to_exists():
    text = (DOCS / "house-tour.md").read_text(encoding="utf-8")
    named = re.findall(r"`((?:\w+/)*\w+\.py)`(?: \(`([\w.]+)`)?", text)
    assert len(named) > 40
    for file, inside in named:
        places = [place for place in (ROOT / "src" / "glidepath" / file, ROOT / file) if place.exists()]
        assert places, file
        word = inside.rpartition(".")[2]
        assert re.search(rf"\b{word}\b", places[0].read_text(encoding="utf-8")), f"{file} has no {inside}"


def test_every_name_in_the_house_tour_is_a_name_of_the_code():
    text = (DOCS / "house-tour.md").read_text(encoding="utf-8")
    code = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py"))
    known = set(re.findall(r"\w+", code)) | {path.stem for path in (ROOT / "src" / "glidepath").rglob("*")}
    named = {word.rpartition(".")[2] for word in re.findall(r"`([A-Za-z_][\w.]*)(?:\([^`]*\))?`", text)}
    assert len(named) > 100
    assert named - known <= {"py", "pyi", "toml", "uncancel", "mypy"}


def test_the_walks_of_the_house_tour_are_those_that_runs_take():
    walk = script("trace_walk")
    text = (DOCS / "house-tour.md").read_text(encoding="utf-8")
    drawn = walk.draw_all(walk.trace_all())
    assert list(drawn) == ["plain", "durable", "landing", "resume"]
    for walk_name, lines in drawn.items():
        assert f"```text\n{lines}\n```" in text, f"scripts/trace_walk.py {walk_name} prints another walk"


def test_every_guarantee_is_listed_and_its_proofs_carry_its_number():
    rows = table(DOCS / "guarantees.md", "", "promise", "proof")
    assert [row[0] for row in rows] == [f"G{number}" for number in range(1, 20)]
    for number, _promise, proof in rows:
        files = re.findall(r"\]\(([^)]+)\)", proof)
        assert files, number
        for file in files:
            text = (DOCS / file).read_text(encoding="utf-8")
            assert re.search(rf"def test_{number.lower()}_", text), f"{file} has no test of {number}"


def test_the_readmes_short_table_has_every_guarantee_once_with_a_file_that_proves_it():
    listed = []
    for _promise, numbers, files in table(ROOT / "README.md", "promise", "guarantees", "tests"):
        texts = [(ROOT / file).read_text(encoding="utf-8") for file in re.findall(r"\]\(([^)]+)\)", files)]
        for number in numbers.split(", "):
            listed.append(number)
            assert any(f"def test_{number.lower()}_" in text for text in texts), f"no file of {number} proves it"
    assert sorted(listed, key=lambda number: int(number[1:])) == [f"G{number}" for number in range(1, 20)]


def test_the_guarantees_page_lists_every_proof_and_no_guarantee_has_none():
    page = (DOCS / "guarantees.md").read_text(encoding="utf-8")
    maker = script("make_guarantees")
    assert maker.updated(page) == page, "run scripts/make_guarantees.py"
    assert sorted(maker.proofs()) == list(range(1, maker.COUNT + 1))
    assert re.findall(r"^## (G\d+) ", page, re.MULTILINE) == [f"G{number}" for number in range(1, maker.COUNT + 1)]


@pytest.mark.parametrize("path", pages(), ids=name)
def test_the_rows_of_a_table_have_as_many_cells_as_its_heading(path):
    for rows in tables(path):
        assert {len(row) for row in rows} == {len(rows[0])}, f"{name(path)}: {rows[0]}"
