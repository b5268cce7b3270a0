import subprocess
import sys

import pytest

from spark_jobs.retrying import call_again


class Script:
    """Raises or returns the given objects, one after the other."""

    def __init__(self, *answers):
        self.left, self.calls = list(answers), 0

    def __call__(self):
        self.calls += 1
        answer = self.left.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer


def again(script, **options):
    options = {"outage": 600.0, "pause": 0.0} | options
    return call_again(script, after=lambda error: isinstance(error, ConnectionError), **options)


def test_a_call_that_works_is_made_once():
    script = Script(5)
    assert again(script, outage=0.0) == 5
    assert script.calls == 1


@pytest.mark.parametrize("longest_pause", [None, 0.0])
def test_a_call_is_made_again_until_it_works(longest_pause):
    first, second, warned = ConnectionError("first"), ConnectionError("second"), []
    script = Script(first, second, 5)
    options = {"longest_pause": longest_pause, "tell": lambda *heard: warned.append(heard)}
    assert again(script, **options) == 5
    assert [error for error, _ in warned] == [first, second]
    assert 0 <= warned[0][1] <= warned[1][1]


@pytest.mark.parametrize("error", [OSError("no such file"), KeyboardInterrupt()])
def test_an_error_that_does_not_pass_is_raised_at_once(error):
    script = Script(ConnectionError("away"), error, 5)
    with pytest.raises(type(error)) as caught:
        again(script)
    assert caught.value is error
    assert script.calls == 2


def test_the_first_error_after_an_outage_is_raised():
    error, warned = ConnectionError("away"), []
    with pytest.raises(ConnectionError) as caught:
        again(Script(error), outage=0.0, tell=lambda *heard: warned.append(heard))
    assert caught.value is error
    assert warned == []


def test_a_hurry_ends_the_retries():
    script = Script(ConnectionError("away"), ConnectionError("still"), 5)
    with pytest.raises(ConnectionError, match="still"):
        again(script, hurry=lambda: script.calls == 2)


def test_a_call_that_works_does_without_tenacity():
    code = (
        "import sys; from spark_jobs.retrying import call_again; "
        "call_again(lambda: 5, after=lambda error: True, outage=0.0); "
        "print('tenacity' in sys.modules)"
    )
    output = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    assert output.strip() == "False"
