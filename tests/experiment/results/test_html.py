import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiment.results.html import bar, block, cell, folded, line, table
from experiment.results.text import printable
from tests.experiment.results.html_reader import Reader, text

texts = st.lists(text, max_size=3)


def shown(raw):
    return printable(raw, keep="\n\t")


@given(text)
def test_text_is_shown_literally_and_never_as_html(raw):
    reader = Reader(cell(raw))
    assert reader.tags == []
    assert reader.said == shown(raw)


@given(text)
def test_text_stays_inside_an_attribute(raw):
    reader = Reader(f'<a href="{cell(raw)}">x</a>')
    assert reader.tags == ["a"]
    assert reader.attributes == [("href", shown(raw))]


@given(text)
def test_a_line_shows_just_its_text(raw):
    reader = Reader(line(raw))
    assert (reader.tags, reader.said) == (["div"], shown(raw))


@given(text, text)
def test_a_folded_text_opens_with_its_title(title, body):
    html = folded(title, body)
    reader = Reader(html)
    assert reader.tags == ["details", "summary", "pre"]
    assert reader.said == shown(title) + shown(body)
    assert Reader(html, "summary").inside == [shown(title)]
    assert Reader(html, "pre").inside == [shown(body)]


@given(texts, st.lists(texts, max_size=3))
def test_a_table_has_its_cells_in_their_order(head, rows):
    html = table(head, rows)
    reader = Reader(html)
    assert Reader(html, "th").inside == [shown(name) for name in head]
    assert Reader(html, "td").inside == [shown(value) for row in rows for value in row]
    assert reader.tags.count("tr") == 1 + len(rows)
    assert reader.open == []


def test_values_that_are_no_text_are_shown_as_text():
    assert Reader(table(["n"], [[1], [None], [0.5]]), "td").inside == ["1", "None", "0.5"]


@given(texts)
def test_text_between_dollar_signs_is_no_formula(raw):
    html = block(*(line(part) for part in raw))
    reader = Reader(html)
    assert reader.tags == ["div"] * (1 + len(raw))
    [(name, classes)] = reader.attributes
    assert name == "class"
    # The first is MathJax 2's class, the second that of MathJax 3 and JupyterLab.
    assert classes.split() == ["tex2jax_ignore", "mathjax_ignore"]
    assert reader.open == []


def test_a_block_leaves_out_parts_that_are_empty():
    assert block("", "<i>a</i>", "") == block("<i>a</i>")
    assert Reader(block()).said == ""


@pytest.mark.parametrize(("done", "total"), [(0, 4), (3, 4), (4, 4)])
def test_a_bar_shows_done_and_total(done, total):
    reader = Reader(bar(done, total))
    assert reader.tags == ["progress"]
    assert {("value", str(done)), ("max", str(total))} <= set(reader.attributes)


def test_a_bar_takes_numbers_only():
    with pytest.raises(ValueError, match="format code"):
        bar("1", '2"><script>')
