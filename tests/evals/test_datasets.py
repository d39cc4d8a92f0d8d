"""Datasets: four formats, and every line that cannot be used is named."""

import csv
import io
import json
import subprocess
import sys

import pytest
from hypothesis import given, strategies as st

from glidepath import ConfigurationError
from glidepath.evals import Case, Contains, Dataset, Exact, Matches

ROWS = [
    {"id": "sum", "prompt": "What is 1+1?", "expected": "2"},
    {"id": "capital", "prompt": "The capital of France?", "expected": "Paris"},
]


def write(folder, name, text):
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def as_csv(rows):
    out = io.StringIO()
    writer = csv.DictWriter(out, ["id", "prompt", "expected"])
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def in_every_format(folder):
    yield write(folder, "a.csv", as_csv(ROWS))
    yield write(folder, "b.jsonl", "".join(json.dumps(row) + "\n" for row in ROWS))
    yield write(folder, "c.yaml", json.dumps(ROWS))  # JSON is YAML
    yield write(folder, "d.yml", json.dumps({"name": "d", "cases": ROWS}))
    yield write(folder, "e.py", f"from glidepath.evals import Case\ncases = [Case(**row) for row in {ROWS!r}]\n")
    yield write(
        folder, "f.py", f"from glidepath.evals import *\ndataset = Dataset([Case(**row) for row in {ROWS!r}])\n"
    )


def test_every_format_says_the_same(tmp_path):
    found = [Dataset.load(path) for path in in_every_format(tmp_path)]
    assert len(found) == 6
    for dataset in found:
        assert [(case.id, case.prompt, case.expected) for case in dataset] == [tuple(row.values()) for row in ROWS]
        assert dataset.unusable == ()
    assert len({dataset.digest for dataset in found}) == 1


TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))


@given(st.lists(st.tuples(TEXT.filter(str.strip), TEXT), min_size=1, max_size=5))
def test_what_is_written_as_json_lines_is_read_back(tmp_path_factory, rows):
    text = "".join(json.dumps({"prompt": prompt, "expected": expected}) + "\n" for prompt, expected in rows)
    path = write(tmp_path_factory.mktemp("d"), "a.jsonl", text)
    assert [(case.prompt, case.expected) for case in Dataset.load(path)] == rows


def test_a_csv_keeps_quotes_line_breaks_and_other_columns(tmp_path):
    path = write(tmp_path, "a.csv", 'question,answer,topic\n"say ""hi""\nnow",hi,words\n')
    (case,) = Dataset.load(path)
    assert (case.prompt, case.expected, case.metadata) == ('say "hi"\nnow', "hi", {"topic": "words"})


@pytest.mark.parametrize("sign", ["\u2028", "\u2029", "\x0b", "\x0c", "\x1c", "\x85"])
def test_a_csv_row_ends_only_where_its_line_ends(tmp_path, sign):
    path = write(tmp_path, "a.csv", f"id,prompt,expected\n1,one{sign}text,right\n")
    assert [(case.prompt, case.expected) for case in Dataset.load(path)] == [(f"one{sign}text", "right")]


def test_quotes_that_never_end_are_named_with_all_the_lines_they_swallow(tmp_path):
    path = write(tmp_path, "a.csv", 'prompt,expected\na,b\n"c,d\ne,f\ng,h\n')
    dataset = Dataset.load(path)
    assert len(dataset) == 1
    assert [one.where for one in dataset.unusable] == ["lines 3 to 5"]


@pytest.mark.parametrize("text", ["yes", "no", "9:00", "2024-01-01", "007", "0x1F", "1_000", ".nan", "off"])
def test_what_is_written_in_yaml_without_quotes_is_the_text_it_looks_like(tmp_path, text):
    path = write(tmp_path, "a.yaml", f"- prompt: {text}\n  id: {text}\n  expected: {text}\n")
    (case,) = Dataset.load(path)
    assert (case.prompt, case.id, case.expected) == (text, text, text)


def test_numbers_and_truth_in_yaml_are_those_of_json(tmp_path):
    rows = [7, -1, 0, 0.5, 1e3, True, False, None, [1, "a"], {"a": 1}]
    text = "".join(f"- {{prompt: a, expected: {json.dumps(one)}}}\n" for one in rows)
    assert [case.expected for case in Dataset.load(write(tmp_path, "a.yaml", text))] == rows


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.csv", "ID,Prompt,EXPECTED\nx,a,b\n"),
        ("a.jsonl", '{"Id": "x", "Question": "a", "Answer": "b"}\n'),
        ("a.yaml", "- {ID: x, Input: a, Expected: b}\n"),
    ],
)
def test_capitals_in_the_name_of_a_column_do_not_hide_it(tmp_path, name, text):
    (case,) = Dataset.load(write(tmp_path, name, text))
    assert (case.id, case.prompt, case.expected, case.metadata) == ("x", "a", "b", {})


def test_what_has_no_end_cannot_be_expected(tmp_path):
    loop = "- {prompt: fine, expected: [&x [1], *x]}\n- {prompt: loop, expected: &y [*y]}\n- prompt: a\n  expected:\n"
    bomb = "".join(f"  - &{name} [{f'*{before}, ' * 10}]\n" for before, name in zip("abcdef", "bcdefg", strict=True))
    dataset = Dataset.load(write(tmp_path, "a.yaml", f"{loop}  - &a [x]\n{bomb}"))
    assert [case.prompt for case in dataset] == ["fine"]
    assert [one.why[:40] for one in dataset.unusable] == [
        "what it expects is nested too deeply, or",
        "what it expects has more than 100,000 pa",
    ]


def test_the_digest_is_the_same_in_every_process_whatever_is_expected():
    def make():
        return Dataset(
            [
                Case(prompt="a", expected={"one", "two", "three"}),
                Case(prompt="b", expected=object()),
                Case(prompt="c", expected={1: 2, "a": [1, (2, None)]}),
            ]
        )

    assert make().digest == make().digest
    script = (
        "from glidepath.evals import Case, Dataset\n"
        "print(Dataset([Case(prompt='a', expected={'one', 'two', 'three'}), Case(prompt='b', expected=object()),"
        " Case(prompt='c', expected={1: 2, 'a': [1, (2, None)]})]).digest)"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert ran.stdout.strip() == make().digest


def test_other_settings_of_an_evaluator_are_another_dataset():
    first, second, both = [
        Dataset([Case(prompt="a", evaluators=own)], evaluators=shared)
        for own, shared in (((Matches(pattern="a"),), ()), ((Matches(pattern="b"),), ()), ((), (Matches(pattern="a"),)))
    ]
    assert len({first.digest, second.digest, Dataset([Case(prompt="a")]).digest}) == 3
    assert first.digest == both.digest


def test_an_id_that_cannot_be_written_is_named_all_the_same(tmp_path):
    text = '- {id: "a\\ud800", prompt: x}\n- {id: ' + "y" * 5_000 + ", prompt: x}\n- {prompt: x}\n"
    dataset = Dataset.load(write(tmp_path, "a.yaml", text))
    assert [case.id for case in dataset] == ["3"]
    assert [one.id[:2] for one in dataset.unusable] == ["a\ufffd", "yy"]
    assert all(len(one.id) <= 200 for one in dataset.unusable)


def test_cases_without_an_id_have_their_number():
    assert [case.id for case in Dataset([Case(prompt="a"), Case(prompt="b", id="x"), Case(prompt="c")])] == [
        "1",
        "x",
        "3",
    ]


def test_a_line_that_cannot_be_used_is_named_and_the_others_run(tmp_path):
    lines = [
        '{"id": "good", "prompt": "a", "expected": {"n": 1}}',
        '{"id": "good", "prompt": "again"}',
        '{"id": "empty"}',
        '{"id": "blank", "prompt": "  "}',
        '{"id": "number", "prompt": 7}',
        "not json",
        "[1]",
        '{"prompt": "b", "evaluators": ["exakt"]}',
        '{"prompt": "c", "expected": "[", "evaluators": ["regex"]}',
        '{"prompt": "last"}',
    ]
    dataset = Dataset.load(write(tmp_path, "a.jsonl", "\n".join(lines)))
    assert [case.id for case in dataset] == ["good", "10"]
    said = {one.where: one.why for one in dataset.unusable}
    assert list(said) == [f"line {number}" for number in range(2, 10)]
    assert "already used by line 1" in said["line 2"]
    assert said["line 3"] == "it has no prompt"
    assert "did you mean exact?" in said["line 8"]
    assert "is not a regular expression" in said["line 9"]


def test_a_csv_line_with_too_many_columns_is_named(tmp_path):
    dataset = Dataset.load(write(tmp_path, "a.csv", "prompt,expected\na,b\na,b,c\n"))
    assert len(dataset) == 1
    assert [(one.where, one.why) for one in dataset.unusable] == [
        ("line 3", "it has 3 columns, and the first line 2"),
    ]


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        (
            "a.csv",
            "text,expected\na,b\n",
            "no column `prompt` (or input or question): its columns are text, expected",
        ),
        ("a.csv", "prompt,prompt\na,b\n", "the column 'prompt' twice"),
        ("a.csv", "prompt\n", "has no case"),
        ("a.jsonl", "\n\n", "has no case"),
        ("a.yaml", "a: [", "is not YAML"),
        ("a.yaml", "cases: 7", "expected a list of cases"),
        ("a.yaml", "{case: []}", "there is no 'case': use name, evaluators and cases"),
        ("a.yaml", "{evaluators: [exakt], cases: [{prompt: a}]}", "did you mean exact?"),
        ("a.txt", "a", "a dataset is one of .py, .yaml"),
        ("a.py", "1/0", "ZeroDivisionError"),
        ("a.py", "import sys\nsys.exit(3)", "SystemExit: 3"),
        ("a.py", "def cases():\n    raise ValueError('no')", "ValueError: no"),
        ("a.csv", "id;prompt\n1;a\n", "separated by semicolons, save them with commas"),
        ("a.csv", "id\tprompt\n1\ta\n", "separated by tabs"),
        ("a.py", "x = 1", "expected `dataset = Dataset([...])`"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_with_a_sentence(tmp_path, name, text, said):
    with pytest.raises(ConfigurationError) as raised:
        Dataset.load(write(tmp_path, name, text))
    assert said in str(raised.value)


def test_a_file_that_is_not_utf_8_or_not_there_is_refused(tmp_path):
    (tmp_path / "a.csv").write_bytes(b"prompt\n\xff\n")
    with pytest.raises(ConfigurationError, match="is not UTF-8"):
        Dataset.load(tmp_path / "a.csv")
    with pytest.raises(ConfigurationError, match="cannot be read"):
        Dataset.load(tmp_path / "none.csv")


def test_data_cannot_name_code(tmp_path):
    dataset = Dataset.load(write(tmp_path, "a.jsonl", '{"prompt": "a", "evaluators": ["os:system"]}'))
    assert len(dataset) == 0
    assert "'os:system' is not one of" in dataset.unusable[0].why


def test_evaluators_in_a_file_are_the_built_in_ones(tmp_path):
    text = "evaluators: [{contains: hello}]\ncases:\n- {prompt: a, evaluators: [exact, {regex: '[0-9]'}]}\n"
    dataset = Dataset.load(write(tmp_path, "a.yaml", text))
    assert dataset.evaluators == (Contains(text="hello"),)
    assert dataset.cases[0].evaluators == (Exact(), Matches(pattern="[0-9]"))


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Dataset([]), "has no case"),
        (lambda: Dataset(["a"]), r"Dataset.cases\[1\] must be a Case"),
        (lambda: Dataset([Case(prompt="a")], evaluators=[7]), "expected an evaluator"),
        (lambda: Dataset([Case(prompt="a")], evaluators=[Exact]), "expected an evaluator"),
        (lambda: Case(prompt=7), "Case.prompt must be a str"),
        (lambda: Matches(pattern="["), "is not a regular expression"),
    ],
)
def test_a_wrong_dataset_is_refused(make, said):
    with pytest.raises(ConfigurationError, match=said):
        make()
