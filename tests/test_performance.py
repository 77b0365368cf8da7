"""PERFORMANCE.md says what was recorded, and says so where that is out of date."""

import json

import pytest
from make_performance import BEGIN, END, PAGE, RECORDS, changes, figures, peers_pinned, with_figures


@pytest.fixture
def records():
    return json.loads(RECORDS.read_text("utf-8"))


def test_page_holds_the_recorded_figures(records):
    page = PAGE.read_text("utf-8")
    assert page == with_figures(page, figures(records)), "run tests/make_performance.py"
    assert page.count(BEGIN) == page.count(END) == 1
    for record in records.values():
        assert f"{record['report']['decode_tok_s']['p50']:.1f}" in page


def test_figures_of_other_peers_than_the_pinned_are_marked(records):
    for title, record in records.items():
        told = [change.partition(" was ")[0] for change in changes(record["report"], peers_pinned())]
        marked = [change.partition(" was ")[0] for change in record["stale"]]
        assert set(told) <= set(marked), f"{title}: run tests/make_performance.py"


REPORT = {
    "device": "browser",
    "versions": {"chromium": "156.0"},
    "adapter": {"device": "", "description": ""},
    "peers": {"wllama:2": {"version": "3.13.0"}},
}


@pytest.mark.parametrize(
    ("here", "told"),
    [
        ({}, []),  # nothing is known here: no reason to doubt them
        ({"chromium": "156.0", "wllama": "3.13.0", "native driver": "Mesa 25"}, []),
        ({"chromium": "157.0"}, ["chromium was 156.0, is 157.0"]),
        (
            {"chromium": "157.0", "wllama": "4.0"},
            ["wllama was 3.13.0, is 4.0", "chromium was 156.0, is 157.0"],
        ),
    ],
)
def test_what_changed_since_is_told(here, told):
    assert changes(REPORT, here) == told


def test_native_figures_depend_on_the_driver():
    report = {"device": "native", "versions": {}, "adapter": {"device": "llvmpipe", "description": "Mesa 22"}}
    assert changes(report, {"native driver": "llvmpipe Mesa 22", "chromium": "1"}) == []
    told = changes(report, {"native driver": "llvmpipe Mesa 25"})
    assert told == ["native driver was llvmpipe Mesa 22, is llvmpipe Mesa 25"]


def test_stale_figures_are_marked_in_the_page(records):
    title, record = next(iter(records.items()))
    text = figures({title: {**record, "stale": ["chromium was 1, is 2"]}})
    assert f"### {title} (stale)" in text and "**Stale**, measure again: chromium was 1, is 2." in text
    assert "stale" not in figures({title: {**record, "stale": []}}).lower()
