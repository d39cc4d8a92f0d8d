"""What the site adds to the pages: two tabs for a program, readable parameters, diagrams; and a short README."""

import ast
import re
import sys

import pytest

from .pages import ROOT, blocks, name, pages, script

sys.path.insert(0, str(ROOT / "scripts"))
TABS = script(ROOT / "scripts" / "site_tabs.py")
REFERENCE = script(ROOT / "scripts" / "site_reference.py")
PROGRAMS = [
    pytest.param(block.text, id=f"{name(page)}:{block.line}")
    for page in pages()
    for block in blocks(page)
    if block.language == "python" and TABS.real_form(block.text)
]


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_with_a_real_model_needs_no_fake_and_defines_what_it_uses(program):
    real = TABS.real_form(program)
    assert '"anthropic:claude-sonnet-4-5"' in real
    assert "glidepath.testing" not in real
    assert "Scripted" not in real
    bound = {node.id for node in ast.walk(ast.parse(program)) if isinstance(node, ast.Name)}
    assert not TABS.FAKES & {node.id for node in ast.walk(ast.parse(real)) if isinstance(node, ast.Name)} & bound


def test_enough_programs_can_be_copied_with_a_real_model():
    assert len(PROGRAMS) > 40


@pytest.mark.parametrize(
    "program",
    [
        "print(1)",
        "agent = Agent(model=ScriptedModel([say('x')]))\nVirtualClock().run(agent.run('x'))",
        "from glidepath.testing import ScriptedModel, simulate\nsimulate(Agent(model=ScriptedModel([])))",
        "def broken(:",
    ],
)
def test_a_program_that_stays_scripted_keeps_its_one_form(program):
    assert TABS.real_form(program) is None
    page = f"```python\n{program}\n```\ntext"
    assert TABS.with_tabs(page) == page


def test_the_tested_form_and_its_output_are_in_the_second_tab():
    page = (
        "Before.\n```python\nagent = Agent(model=ScriptedModel([say('x')]))\n```\n``` { .text .output }\nx\n```\nAfter."
    )
    shown = TABS.with_tabs(page)
    first, _, second = shown.partition('=== "As tested"')
    assert 'Agent(model="anthropic:claude-sonnet-4-5")' in first
    assert "ScriptedModel" in second
    assert "    x\n" in second
    assert shown.endswith("After.")


@pytest.mark.parametrize("owner", ["Limits", "LoopConfig", "GuardrailsConfig"])
def test_each_parameter_has_its_type_its_default_and_a_sentence(owner):
    rows = REFERENCE.parameters(owner).splitlines()[2:]
    assert len(rows) > 5
    for row in rows:
        cells = re.split(r"(?<!\\)\|", row)[1:-1]
        assert len(cells) == 4, row
        assert all(cell.strip() for cell in cells), row
        assert not re.search(r"Declared|Setting\(|setting\(", row)


def test_types_lead_to_their_entries_and_every_entry_has_its_source():
    assert "[Limits][glidepath.agent.limits.Limits]" in REFERENCE.parameters("LoopConfig")
    for public, path in REFERENCE.homes().items():
        module = path.rpartition(".")[0]
        assert REFERENCE.source_of(module).exists(), (public, path)


def test_the_page_of_agent_shows_its_parameters_and_every_module_has_a_page():
    assert "| `model` |" in REFERENCE.module_page("glidepath")
    for module in REFERENCE.load_script("make_surface").MODULES:
        assert REFERENCE.module_page(module).startswith("---\nsearch:\n  boost: 0.02\n")


def test_the_diagrams_are_drawn_by_their_script_and_legible_in_the_dark():
    for file, drawn in script(ROOT / "scripts" / "draw_diagrams.py").drawn().items():
        assert (ROOT / "docs" / "images" / file).read_text(encoding="utf-8") == drawn, "run scripts/draw_diagrams.py"
        assert "prefers-color-scheme: dark" in drawn


def test_the_readme_is_short_and_its_first_screen_has_no_table():
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 150
    first = lines[:60]
    assert not [line for line in first if line.startswith("|")]
    assert any(line.startswith("![") for line in first[:5])
    assert any(line.startswith("make demo") for line in first[:12])
