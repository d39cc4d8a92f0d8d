"""Datasets: four formats, and every line that cannot be used is named."""

import csv
import io
import json

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
