"""The table of where the time of a search goes."""

from __future__ import annotations

import importlib
import operator

import pytest

from tests.benchmarks.span_marks.sitecustomize import PARTS
from tests.benchmarks.spans import Call, Row, Span, medians, rows_of, table

CALL = Call(100.0, 101.0, (100.5, 100.4))


def test_the_parts_of_a_search_are_those_that_begin_during_it():
    spans = [
        Span("checks", 100.1, 100.2, 1),
        Span("slot", 100.3, 100.7, 2),
        Span("slot", 100.25, 100.5, 3),
        Span("zygote: trial", 100.4, 100.75, 4),
        Span("checks", 99.0, 100.5, 1),
        Span("checks", 101.5, 102.5, 1),
    ]
    rows = {row.name: (round(row.at), round(row.took)) for row in rows_of(CALL, spans)}
    assert rows == {
        "**from the call to the first trial's first line**": (0, 400),
        "checks": (100, 100),
        "slot": (250, 400),
        "zygote: trial": (400, 350),
        "**from the last trial's end to the return**": (750, 250),
    }


@pytest.mark.parametrize(
    ("module", "part"), [(module, part) for module in PARTS for part in PARTS[module]]
)
def test_each_part_exists(module, part):
    assert callable(operator.attrgetter(part)(importlib.import_module(module)))


def test_a_part_of_one_search_in_many_is_left_out():
    often, seldom = Row("often", 5.0, 1.0), Row("seldom", 1.0, 9.0)
    later = Row("often", 7.0, 3.0)
    assert medians([[often, seldom], [later], [later]]) == [later]


def test_parts_that_take_no_time_are_not_shown():
    rows = [Row("short", 1.0, 4.9), Row("long", 2.0, 5.1), Row("**all**", 3.0, 0.0)]
    assert table("part", rows).splitlines()[2:] == ["| long | 2 | 5 |", "| **all** | 3 | 0 |"]
