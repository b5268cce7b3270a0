import io

import pytest

from experiment.progress import Progress
from experiment.result import TrialResult
from search.direction import Direction
from search.trial import Failure


class Terminal(io.StringIO):
    def isatty(self):
        return True


def finished(number, value):
    return TrialResult(number, {}, value, {}, "finished", None, 1.0, "")


def failed(number):
    error = Failure("user error", "ValueError")
    return TrialResult(number, {}, None, {}, "failed", error, 1.0, "")


@pytest.mark.parametrize(("direction", "best"), [(Direction.MAX, "0.75"), (Direction.MIN, "-0.5")])
def test_the_last_line_has_counts_failures_and_the_best(direction, best):
    stream = io.StringIO()
    progress = Progress("train", 5, direction, stream)
    for result in [finished(0, 0.25), failed(1), finished(2, 0.75), failed(3), finished(4, -0.5)]:
        progress.ended(result, "accuracy")
    progress.close()
    assert stream.getvalue().splitlines()[-1] == (
        f"train: 5/5 trials, 2 failed, best accuracy {best}"
    )
    assert stream.getvalue().endswith("\n")


def test_without_a_terminal_there_are_no_control_characters():
    stream = io.StringIO()
    progress = Progress("train", 300, Direction.MAX, stream)
    for number in range(300):
        progress.ended(finished(number, float(number)), "metric")
    progress.close()
    lines = stream.getvalue().splitlines()
    assert lines[-1] == "train: 300/300 trials, best metric 299"
    assert len(lines) < 10
    assert all(line.isprintable() for line in lines)


def test_what_is_not_there_is_left_out():
    stream = io.StringIO()
    Progress("train", 3, Direction.MAX, stream).close()
    assert stream.getvalue() == "train: 0/3 trials\n"


def test_all_failed_has_no_best():
    stream = io.StringIO()
    progress = Progress("train", 1, Direction.MIN, stream)
    progress.ended(failed(0), None)
    progress.close()
    assert stream.getvalue() == "train: 1/1 trials, 1 failed\n"


@pytest.mark.parametrize("status", ["failed", "stopped", "cancelled"])
@pytest.mark.parametrize("stream_type", [io.StringIO, Terminal])
def test_a_trial_without_a_value_is_counted(status, stream_type):
    stream = stream_type()
    progress = Progress("train", 2, Direction.MAX, stream)
    progress.ended(TrialResult(0, {}, None, {}, status, None, 0.0, ""), None)
    progress.ended(finished(1, 2.0), "metric")
    progress.close()
    failed = ", 1 failed" if status == "failed" else ""
    last = stream.getvalue().rstrip("\n")
    assert last.endswith(f"train: 2/2 trials{failed}, best metric 2")


def test_a_value_that_is_not_a_number_is_never_the_best():
    stream = io.StringIO()
    progress = Progress("train", 2, Direction.MIN, stream)
    progress.ended(finished(0, float("nan")), "loss")
    progress.ended(finished(1, 3.0), "loss")
    progress.close()
    assert stream.getvalue() == "train: 2/2 trials, best loss 3\n"


@pytest.mark.parametrize("stream_type", [io.StringIO, Terminal])
def test_control_characters_of_the_user_do_not_reach_the_stream(stream_type):
    stream = stream_type()
    progress = Progress("a\x1b[2Jb\nc\rd\x00e\x9bf\u202eg\ud800ü", 1, Direction.MAX, stream)
    progress.ended(finished(0, 1.0), "m\x1b]0;t\x07\n")
    progress.close()
    text = stream.getvalue()
    assert "a?[2Jb?c?d?e?f?g?ü: 1/1 trials, best m?]0;t?? 1" in text
    assert text.count("\x1b") == text.count("\x1b[K")
    assert text.count("\n") == 1
    for character in "\x00\x07\x9b\u202e\ud800":
        assert character not in text


def test_a_terminal_has_one_line_that_is_written_over():
    stream = Terminal()
    progress = Progress("train", 2, Direction.MAX, stream)
    progress.ended(finished(0, 1.0), "metric")
    progress.ended(finished(1, 2.0), "metric")
    progress.close()
    text = stream.getvalue()
    assert text.startswith("\r\x1b[K")
    assert text.endswith("\r\x1b[Ktrain: 2/2 trials, best metric 2\n")
    assert text.count("\n") == 1


def test_the_line_goes_to_standard_error_unless_told_otherwise(capsys):
    Progress("train", 1, Direction.MAX).close()
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "train: 0/1 trials\n")
