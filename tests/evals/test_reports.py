"""Reports: two evaluations compared, JUnit and the page, whatever is in them."""

import xml.etree.ElementTree as ET
from decimal import Decimal
from html.parser import HTMLParser

import pytest
from hypothesis import given, strategies as st

from glidepath import ConfigurationError
from glidepath.apps.evals import compare_reports
from glidepath.evals import CaseResult, EvalReport, Score, Unusable


def report(name, *verdicts, repeat=1, prompts=None, **more):
    """A report with these verdicts, one text of + - ? for each case."""
    results = tuple(
        CaseResult(
            case_id=f"c{place}",
            repeat=number,
            place=place,
            passed={"+": True, "-": False, "?": None}[sign],
            why="" if sign == "+" else f"because {sign}",
            prompt=(prompts or {}).get(place, f"q{place}"),
            state="completed",
            outcome="done",
            tokens=100,
            cost=Decimal("0.001"),
        )
        for place, signs in enumerate(verdicts)
        for number, sign in enumerate(signs, 1)
    )
    fields = {"dataset": "d", "agent": "a", "cases": len(verdicts), "began": "2026-01-01T00:00:00+00:00"}
    return EvalReport(name=name, repeat=repeat, results=results, **{**fields, **more})


def test_a_clear_difference_is_called_hardly_chance():
    found = compare_reports(report("before", *"-" * 12, *"+" * 20), report("after", *"+" * 32))
    assert (found.cases, found.difference, found.better, found.worse) == (
        32,
        0.375,
        tuple(f"c{n}" for n in range(12)),
        (),
    )
    assert found.is_real
    assert not found.is_worse
    assert found.sentence.startswith("after passes 37.5 points more often than before (95 % interval +")
    assert found.sentence.endswith(
        "Two equal agents would differ this much in 1 of 2,048 comparisons: this is hardly chance."
    )
    back = compare_reports(report("after", *"+" * 32), report("before", *"-" * 12, *"+" * 20))
    assert back.is_worse


def test_a_small_difference_is_called_chance():
    found = compare_reports(report("a", *"+-+++"), report("b", *"++--+"))
    assert found.better == ("c1",)
    assert found.worse == ("c2", "c3")
    assert "b passes 20.0 points less often than a" in found.sentence
    assert found.sentence.endswith("100 of 100 comparisons: this can be chance.")


def test_repeats_are_compared_case_by_case():
    found = compare_reports(report("a", "+-", "++", "--", repeat=2), report("b", "+++", "++-", "---", repeat=3))
    assert found.first_rate == pytest.approx(0.5)
    assert found.difference == pytest.approx((0.5 - 1 / 3) / 3)
    assert found.chance == 1.0


def test_only_what_both_cover_is_compared_and_the_rest_is_named():
    one, two = report("a", *"+?-+"), report("b", *"++-", prompts={2: "another question"})
    found = compare_reports(one, two)
    assert (found.cases, found.only_first, found.only_second, found.other_prompts) == (1, 1, 1, 1)
    assert "not compared: 1 only a covers, 1 only b covers, 1 with another prompt or expectation" in found.to_text()
    with pytest.raises(ConfigurationError, match="share no case"):
        compare_reports(report("a", "?"), report("b", "+"))


class Reader(HTMLParser):
    """Notes every element and everything that would be fetched."""

    def __init__(self):
        super().__init__()
        self.seen, self.fetched, self.texts = [], [], []

    def handle_starttag(self, tag, attrs):
        self.seen.append(tag)
        self.fetched += [value for name, value in attrs if name in ("src", "href", "data", "srcset")]

    def handle_data(self, data):
        self.texts.append(data)


NASTY = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from("<>&\"'\x00\x1b"), max_size=30)


@given(NASTY, NASTY, NASTY)
def test_no_text_can_break_out_of_the_page_or_the_junit_file(name, why, text):
    one = CaseResult(
        case_id=name,
        repeat=1,
        passed=False,
        why=why,
        prompt=text,
        text=f"<script>alert(1)</script>{text}",
        scores=(Score(name=name, passed=None, why=why),),
        state="completed",
        outcome="done",
        cost=Decimal("0.5"),
    )
    made = report("e", dataset=name, agent=text, unusable=(Unusable(id=name, where=text, why=why),), cases=1)
    made = EvalReport.of_json(made.to_json())
    whole = type(made)(**{field: getattr(made, field) for field in made.__struct_fields__} | {"results": (one,)})
    reader = Reader()
    reader.feed(whole.to_html())
    assert "script" not in reader.seen
    assert reader.fetched == []
    assert any("<script>alert(1)" in said for said in reader.texts)
    assert ET.fromstring(whole.to_junit())[0].get("failures") == "1"


def test_the_page_shows_the_figures_the_gaps_and_failures_first():
    page = report("e", *"+-?", unusable=(Unusable(id="x", where="line 9", why="it has no prompt"),)).to_html()
    assert "50.0 %" in page
    assert "2 of 4" in page
    assert "because ?" in page
    assert "case x (line 9): it has no prompt" in page
    assert page.index(">c1<") < page.index(">c2<") < page.index(">c0<")


def test_an_empty_report_still_makes_every_file():
    empty = report("e", cases=3)
    assert "nothing is covered" in empty.to_text()
    assert empty.uncovered == {"not run yet": 3}
    assert "0 of 3" in empty.to_html()
    (suite,) = ET.fromstring(empty.to_junit())
    assert (suite.get("tests"), suite.get("skipped")) == ("1", "1")
    assert (suite[0].get("name"), suite[0][0].get("message")) == ("3 more attempts", "not run yet")
