import re
from html.parser import HTMLParser

import markdown
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from experiment.display.description import (
    description,
    domain_in_words,
    escaped,
    failure_description,
)
from experiment.results.text import printable
from experiment.results.trial_result import TrialResult
from search.grid import PointSearch
from search.space.spaces import Choice, Float, Integer, Space
from search.stopping.rules import Patience, Threshold
from search.trial import Failure
from tests.experiment.runs import make_manifest, make_search, make_spec
from tests.properties import examples

# As TensorBoard's text page renders it.
EXTENSIONS = ["markdown.extensions.tables", "markdown.extensions.fenced_code"]

OURS = {"h1", "h2", "p", "pre", "code", "table", "thead", "tbody", "tr", "th", "td"}


class Page(HTMLParser):
    """Markdown as a browser shows it: headings, paragraphs, code and tables."""

    def __init__(self, text, render=None):
        super().__init__()
        self.tags, self.texts, self.tables = [], {}, []
        self._open = []
        render = render or (lambda text: markdown.markdown(text, extensions=EXTENSIONS))
        self.feed(render(text))
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self._open.append(tag)
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][-1].append("")
        elif tag not in ("thead", "tbody"):
            self.texts.setdefault(tag, []).append("")

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        if self._open and self._open[-1] in ("td", "th"):
            self.tables[-1][-1][-1] += data
        elif self._open and self._open[-1] not in ("table", "thead", "tbody", "tr"):
            self.texts[self._open[-1]][-1] += data

    def table(self, first):
        """Return the rows of the table whose first column has this name."""
        [(_, *rows)] = [table for table in self.tables if table[0][0] == first]
        return rows


def page(text):
    return Page(text)


def in_one_line(text):
    """Return a text as HTML shows it, where all white space is the same."""
    return " ".join(printable(text, keep="\r\n\t").split())


HOSTILE = [
    "a|b",
    "|",
    "\\|",
    "\\\\|x",
    "`a|b`",
    "``",
    "```",
    "~~~",
    "<script>alert(1)</script>",
    "<b>bold</b>",
    "<!--",
    "&lt;b&gt; &amp; &#124; &copy;",
    "*bold* **bold** _it_ __it__",
    "[link](http://a.b)",
    "![image](http://a.b)",
    "[note]: http://a.b",
    "<http://a.b>",
    "http://a.b",
    "a\nb",
    "a\r\n\r\nb",
    "a  \nb",
    "# head",
    "text\n===",
    "---",
    "- - -",
    "- item",
    "+ item",
    "* item",
    "1. item",
    "17. item",
    "> quote",
    "    code",
    "\tcode",
    "trailing #",
    "trailing \\",
    "\x1b[31mred\x1b[0m    ",
    "\x1b[0m    code",
    "\x1b]0;title\x07",
    "\x02klzzwxh:0000\x03",
    "\x02wzxhzdk:0\x03",
    "klzzwxh:0000",
    "\u202eabc",
    "größe 数据 🐍",
    "$x^2$",
    "{a} {{a}} %d",
    "-0.5",
    ".5",
    "=",
    ":",
    ": definition",
    "'\"",
]

pieces = st.sampled_from([*"|`*_[]()#!-+.<>&\\~=:1a \"'{}\n\t^$@/?;,%", *HOSTILE])
texts = st.lists(pieces, max_size=8).map("".join) | st.text(max_size=10)


@given(texts)
@examples(300)
def test_a_paragraph_shows_any_text_literally(text):
    shown = page(f"before\n\n{escaped(text)}\n\n    after")
    line = in_one_line(text)
    assert shown.texts["p"] == (["before", line] if line else ["before"])
    assert shown.texts["code"] == ["after\n"]
    assert set(shown.tags) <= {"p", "pre", "code"}


@given(texts, texts)
@examples(300)
def test_a_cell_shows_any_text_literally(one, other):
    row = f"| {escaped(one)} | {escaped(other)} |"
    shown = page(f"| a | b |\n| --- | --- |\n{row}\n| x | y |")
    assert shown.tables == [[["a", "b"], [in_one_line(one), in_one_line(other)], ["x", "y"]]]
    assert shown.texts == {}


@given(texts)
@examples(300)
def test_a_heading_shows_any_text_literally(text):
    shown = page(f"# {escaped('x' + text)}")
    assert shown.texts == {"h1": [in_one_line("x" + text)]}


@pytest.mark.parametrize("text", HOSTILE, ids=ascii)
def test_hostile_text_is_shown_literally_everywhere(text):
    manifest = make_manifest(
        make_search(3),
        name=text,
        description=text,
        train=text,
        optimization_key=text,
        master=text,
        application="app",
        versions={text: text},
    )
    shown = page(description(manifest))
    line = in_one_line(text)
    assert shown.texts["h1"] == [line]
    assert shown.texts["p"] == [line]
    assert len(shown.texts["code"]) == 1
    assert printable(text) in shown.texts["code"][0]
    assert ["optimization_key", line] in shown.table("setting")
    assert ["Spark", in_one_line(f"{text}, app")] in shown.table("setting")
    assert shown.table("package") == [[line, line]]
    assert set(shown.tags) <= OURS


def good_name(text):
    try:
        Space({text: Integer(1, 2)})
    except ValueError:
        return False
    return True


@pytest.mark.parametrize("name", list(filter(good_name, HOSTILE)), ids=ascii)
def test_hostile_names_of_hyperparameters_are_shown_literally(name):
    space = Space({"first": Choice(["a"]), name: Choice(["x"])})
    manifest = make_manifest(make_spec("launch", PointSearch([]), space))
    rows = page(description(manifest)).table("hyperparameter")
    assert rows == [["first", "a", "choice"], [in_one_line(name), "x", "choice"]]


@pytest.mark.parametrize("value", HOSTILE, ids=ascii)
def test_hostile_values_of_hyperparameters_are_shown_literally(value):
    space = Space({"x": Choice([value, "z"]), "y": Choice([[value], {value: 1}])})
    manifest = make_manifest(make_spec("launch", PointSearch([]), space))
    [(_, one, _), (_, other, _)] = page(description(manifest)).table("hyperparameter")
    assert one == in_one_line(f"{printable(value)}, z")
    assert other == in_one_line(printable(f"{[value]}, {{{value!r}: 1}}"))


@pytest.mark.filterwarnings("ignore:html5lib's sanitizer is deprecated:DeprecationWarning")
def test_the_sanitizer_of_tensorboard_does_not_change_the_description():
    from tensorboard.plugin_util import markdown_to_safe_html

    text = description(make_manifest(make_search(8, generations=True), description="a | <b> *c*"))
    plain, safe = Page(text), Page(text, markdown_to_safe_html)
    assert (plain.tags, plain.texts, plain.tables) == (safe.tags, safe.texts, safe.tables)


def test_the_description_has_the_number_of_prior_observations():
    search = make_search(8, generations=True)
    row = ["prior observations", "12"]
    assert row in page(description(make_manifest(search, known=12))).table("setting")
    assert row[0] not in description(make_manifest(search))


def test_the_description_has_call_space_settings_and_versions():
    manifest = make_manifest(
        make_search(8, generations=True),
        description="Two\nlines.",
        timeout=60.0,
        stopping=[Patience(3).to_json(), Threshold(upper=9.0).to_json()],
        versions={"a": "1"},
    )
    shown = page(description(manifest))
    assert shown.texts["h1"] == ["digits"]
    assert shown.texts["h2"] == ["Space", "Settings", "Versions"]
    assert shown.texts["p"] == ["Two lines."]
    assert shown.texts["code"] == [
        "experiment.evolutionary_search(spark, train, ..., variant='rand1bin', popsize=4, "
        "generations=1)\n"
    ]
    assert shown.table("hyperparameter") == [
        ["learning_rate", "0.0001 to 0.1", "float, log"],
        ["units", "8 to 64", "integer, linear"],
        ["optimizer", "adam, sgd", "choice"],
    ]
    assert shown.table("setting") == [
        ["direction", "max"],
        ["optimization_key", "accuracy"],
        ["trials", "8"],
        ["seed", "7"],
        ["isolation", "process"],
        ["timeout", "60.0"],
        [
            "stopping",
            "Patience(patience=3, min_delta=0.0), "
            "Threshold(lower=None, upper=9.0, n_warmup_steps=0)",
        ],
        ["Spark", "local[2], local-1700000000000"],
    ]
    assert shown.table("package") == [["a", "1"]]


def test_the_description_names_the_algorithm_of_run_and_the_repeats():
    search = make_spec("run", make_search(3).searcher, None, (), {"type": "NSGA-II", "popsize": 4})
    shown = page(description(make_manifest(search, repeats=3)))
    assert shown.texts["code"] == [
        "experiment.run(spark, train, ..., searcher='NSGA-II', popsize=4)\n"
    ]
    assert ["repeats", "3"] in shown.table("setting")


def test_a_seed_of_zero_is_shown():
    assert ["seed", "0"] in page(description(make_manifest(make_search(3), seed=0))).table(
        "setting"
    )


def test_settings_that_were_not_set_are_left_out():
    search = make_search(0, points=[{"x": 1}, {"y": 2}])
    shown = page(description(make_manifest(search, optimization_key=None)))
    assert shown.texts["h2"] == ["Settings", "Versions"]
    assert "p" not in shown.texts
    assert shown.texts["code"] == ["experiment.launch(spark, train, ...)\n"]
    assert [name for name, _ in shown.table("setting")] == [
        "direction",
        "trials",
        "seed",
        "isolation",
        "Spark",
    ]


def test_a_lambda_and_a_name_of_two_lines_stay_one_line_of_code():
    search = make_search(3, call="random_search")
    for train, seen in (("<lambda>", "<lambda>"), ("a\nb", "a?b")):
        [code] = page(description(make_manifest(search, train=train))).texts["code"]
        assert code == f"experiment.random_search(spark, {seen}, ..., samples=3)\n"


@pytest.mark.parametrize(
    ("domain", "words"),
    [
        (Float(0.1, 0.5), ("0.1 to 0.5", "float, linear")),
        (Float(1e-5, 0.1, log=True), ("1e-05 to 0.1", "float, log")),
        (Float(-1e300, 1 / 3), ("-1e+300 to 0.333333", "float, linear")),
        (Integer(1, 9), ("1 to 9", "integer, linear")),
        (Integer(1, 2**53, log=True), ("1 to 9007199254740992", "integer, log")),
        (Choice(["a", "", None]), ("a, , None", "choice")),
        (Choice([True, 1, 1.0, (1, 2)]), ("True, 1, 1, (1, 2)", "choice")),
        (Choice(range(20)), (", ".join(map(str, range(20))), "choice")),
        (Float(0, 1, step=1), ("0 to 1", "float, linear, steps of 1")),
        (Integer(16, 64, step=16), ("16 to 64", "integer, linear, steps of 16")),
        (Choice(["s", "m"], ordered=True), ("s, m", "ordered choice")),
        (
            Float(0, 0.9, when={"opt": ["sgd", "rms"], "layers": 2}),
            ("0 to 0.9", "float, linear, when opt is sgd or rms, when layers is 2"),
        ),
    ],
    ids=repr,
)
def test_domains_in_words(domain, words):
    assert domain_in_words(domain) == words


def test_a_choice_of_a_billion_values_shows_the_first():
    values, _ = domain_in_words(Choice(range(10**9)))
    assert values.startswith("0, 1, 2, ")
    assert values.endswith(", 19 and 999999980 more")
    space = Space({"seed": Choice(range(10**9))})
    manifest = make_manifest(make_spec("launch", PointSearch([]), space))
    assert page(description(manifest)).table("hyperparameter") == [["seed", values, "choice"]]


def test_long_values_are_cut():
    values, _ = domain_in_words(Choice(["x" * 10**6, list(range(10**5))]))
    assert len(values) < 200


def failed(message, traceback="", params=None):
    error = Failure(kind="user error", message=message, traceback=traceback)
    return TrialResult(
        id=7,
        params=params or {},
        value=None,
        metrics={},
        status="failed",
        error=error,
        seconds=1.0,
        logdir="/runs/000007",
    )


def code_of(text):
    """Return text as a code block shows it: no tabs, no white space at the end of a line."""
    lines = [line.expandtabs(4).rstrip() for line in text.splitlines()]
    return "\n".join(lines).strip("\n").rstrip()


@given(texts.map(lambda text: re.sub("[\x02\x03]", "", text)))
@example("Traceback:\n\n\n\n  File <stdin>\n\t^^^\n~~~\nValueError: `a`\n\n")
@example("- a\n\n1. b\n\n<script>\n\n</script>")
@examples(200)
def test_a_failure_shows_any_traceback_as_code(text):
    shown = page(failure_description(failed("no", "first\n" + text)))
    assert shown.texts["p"] == ["Trial 7: "]
    [code] = shown.texts["code"]
    assert code_of(code) == code_of("first\n" + text)
    assert set(shown.tags) == {"p", "pre", "code"}


@pytest.mark.parametrize("value", HOSTILE, ids=ascii)
def test_a_failure_shows_its_hyperparameters_literally(value):
    shown = page(failure_description(failed("ValueError: no", params={"x": value, "rate": 0.5})))
    assert shown.texts["p"] == [in_one_line(f"Trial 7: x={printable(value)}, rate=0.5")]
    assert shown.texts["code"] == ["ValueError: no\n"]


def test_a_failure_without_a_message_shows_its_trial():
    shown = page(failure_description(failed("")))
    assert shown.texts == {"p": ["Trial 7: "]}
