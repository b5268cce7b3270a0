import re
import shlex
import shutil
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiment.results.text import (
    command,
    count,
    duration,
    hyperparameter,
    hyperparameters,
    number,
    printable,
)

text = st.text(st.characters(exclude_categories=[]), max_size=40)  # lone surrogates too
nasty = st.lists(
    st.sampled_from(["\x1b", "[", "31m", "2J", "\x1b[0m", "\x9b", "\r", "\n", "\u202e", "a"])
).map("".join)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | text,
    lambda inner: st.lists(inner) | st.lists(inner).map(tuple) | st.dictionaries(text, inner),
)


@given(text | nasty)
def test_printable_text_has_only_printable_characters(raw):
    assert printable(raw).isprintable()


@given(text | nasty)
def test_printable_text_keeps_the_given_characters(raw):
    assert printable(raw, keep="\n\t").replace("\n", "").replace("\t", "").isprintable()
    assert printable(raw, keep="\n\t").count("\n") == raw.count("\n")


@given(text | nasty)
def test_printable_text_is_unchanged(raw):
    once = printable(raw)
    assert printable(once) == once
    if raw.isprintable():
        assert once == raw


@pytest.mark.parametrize(
    ("raw", "wanted"),
    [
        ("ü 漢字 😀", "ü 漢字 😀"),
        ("\x1b[1;31mred\x1b[0m\x1b[m", "red"),
        ("\x1b[2Jgone", "?[2Jgone"),
        ("\x1b\x1b[31m[2J", "?[2J"),
        ("\x1b]0;title\x07", "?]0;title?"),
        ("a\rb\nc\td\be\0f", "a?b?c?d?e?f"),
        ("\x9b2J\x7f\ud800", "?2J??"),
        ("abc\u202edef\u200b", "abc?def?"),
    ],
    ids=ascii,
)
def test_colours_are_removed_and_control_characters_become_question_marks(raw, wanted):
    assert printable(raw) == wanted


@pytest.mark.parametrize(
    ("raw", "wanted"),
    [
        ("1\u202f234\u202f567", "1 234 567"),
        ("Précision\u00a0: 0,9", "Précision : 0,9"),
        ("精度\u3000高", "精度 高"),
        ("a\u2009b\u2028c\u2029d", "a b?c?d"),  # the last two end lines
    ],
    ids=ascii,
)
def test_any_space_is_printed_as_a_space(raw, wanted):
    assert printable(raw) == wanted


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_number_has_six_digits_and_is_short(value):
    assert float(number(value)) == pytest.approx(value, rel=1e-5)
    assert len(number(value)) <= 13


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        (0.1 + 0.2, "0.3"),
        (1.0, "1"),
        (1e-7, "1e-07"),
        (float("inf"), "inf"),
        (True, "True"),
        (None, "None"),
        (1234567, "1234567"),
        ("adam", "adam"),
        ("a\nb", "a?b"),
        ((64, "relu"), "(64, 'relu')"),
        ({"a": [1]}, "{'a': [1]}"),
    ],
    ids=str,
)
def test_the_text_of_a_hyperparameter(value, wanted):
    assert hyperparameter(value) == wanted


@given(values, st.integers(10, 80))
def test_any_hyperparameter_is_one_short_line(value, limit):
    written = hyperparameter(value, limit)
    assert written.isprintable()
    assert len(written) <= max(limit, 13)


def test_huge_hyperparameters_take_no_time_and_no_space():
    assert hyperparameter("a" * 10**8) == "a" * 28 + "..." + "a" * 29
    assert len(hyperparameter(["a" * 10**6])) == 60
    assert len(hyperparameter(10**1200)) == 60


def test_long_texts_that_differ_at_either_end_are_shown_differently():
    assert hyperparameter("resnet50_pretrained_v1", 20) == "resnet50...rained_v1"
    assert hyperparameter("resnet50_pretrained_", 20) == "resnet50_pretrained_"
    folder = "hdfs://namenode:8020/user/anna/datasets/images/2026/november"
    small, large = (hyperparameter(f"{folder}/train-{size}.parquet") for size in ("small", "large"))
    assert small != large


def test_hyperparameters_are_a_line_in_their_order():
    params = {"learning_rate": 0.0123456789, "layers": (8, 8), "a\nb": "x\x1b[2Jy"}
    assert hyperparameters(params) == "learning_rate=0.0123457, layers=(8, 8), a?b=x?[2Jy"
    assert hyperparameters({}) == ""


@pytest.mark.parametrize(
    ("seconds", "wanted"),
    [
        (-1, "0 s"),
        (0, "0 s"),
        (0.04, "0.0 s"),
        (0.84, "0.8 s"),
        (9.94, "9.9 s"),
        (9.96, "10 s"),
        (12.4, "12 s"),
        (59.4, "59 s"),
        (59.6, "1 min 0 s"),
        (80, "1 min 20 s"),
        (3599.4, "59 min 59 s"),
        (3599.6, "1 h 0 min"),
        (11100, "3 h 5 min"),
        (360_000, "100 h 0 min"),
    ],
)
def test_the_text_of_durations(seconds, wanted):
    assert duration(seconds) == wanted


UNITS = {"s": 1, "min": 60, "h": 3600}


@given(st.floats(0, 1e8))
def test_a_duration_is_right_to_its_last_unit_and_no_unit_overflows(seconds):
    parts = re.findall(r"([\d.]+) (\w+)", duration(seconds))
    said = sum(float(amount) * UNITS[unit] for amount, unit in parts)
    last = 0.1 if "." in parts[-1][0] else UNITS[parts[-1][1]]
    assert abs(said - seconds) <= max(last, 1)
    assert all(float(amount) < 60 for amount, unit in parts if unit != "h")


@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])))
def test_a_shell_splits_a_command_correctly(folder):
    words = shlex.split(command("show", folder))
    assert words[1:] == ["-m", "experiment", "show", folder]


def test_a_command_names_this_python_if_the_shell_finds_another(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert shlex.split(command("show", "run"))[0] == sys.executable
    (tmp_path / "python").symlink_to(sys.executable)  # another path, so perhaps other packages
    assert shlex.split(command("show", "run"))[0] == sys.executable
    monkeypatch.setattr(sys, "executable", shutil.which("python"))
    assert shlex.split(command("show", "run"))[0] == "python"


def test_a_command_can_be_pasted_into_a_shell(tmp_path):
    folder = tmp_path / "a run of 'ü' $HOME; exit 7 #"
    line = command("list", str(folder))
    ended = subprocess.run(line, shell=True, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 2
    assert str(folder)[-20:] in ended.stderr.replace("\\'", "'")


@pytest.mark.parametrize(
    ("amount", "wanted"), [(0, "0 slots"), (1, "1 slot"), (2, "2 slots"), (1000, "1000 slots")]
)
def test_counts_have_their_noun(amount, wanted):
    assert count(amount, "slot") == wanted
