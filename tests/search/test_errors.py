import pickle

import pytest

from search.errors import ExperimentError, InvalidArgument, did_you_mean, shown


class Unprintable:
    def __repr__(self):
        raise RuntimeError("no repr today")


def test_invalid_argument_is_caught_as_value_error_and_as_error_of_the_project():
    for kind in (ValueError, ExperimentError):
        with pytest.raises(kind):
            raise InvalidArgument("popsize", "an integer", "'ten'")


def test_the_message_has_name_expected_and_got():
    error = InvalidArgument("popsize", "an integer of at least 4", "3")
    assert str(error) == "popsize: expected an integer of at least 4, got 3"


def test_hint_follows_the_message():
    error = InvalidArgument("bounds['x']", "two bounds", "5", "write [low, high]")
    assert str(error) == "bounds['x']: expected two bounds, got 5; write [low, high]"


def test_parts_of_the_message_are_attributes():
    error = InvalidArgument("a", "b", "c", "d")
    assert (error.name, error.expected, error.got, error.hint) == ("a", "b", "c", "d")


@pytest.mark.parametrize("hint", ["", "write [5]"])
def test_invalid_argument_survives_pickling(hint):
    error = InvalidArgument("x", "a list", "5", hint)
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is InvalidArgument
    assert str(copy) == str(error)
    assert vars(copy) == vars(error)


def test_shown_is_the_repr_of_a_short_value():
    assert shown("a\nb") == "'a\\nb'"
    assert shown([1, 2.5, None]) == "[1, 2.5, None]"


def test_shown_cuts_a_long_repr_to_the_limit():
    assert shown("x" * 500) == "'" + "x" * 116 + "..."
    assert len(shown(list(range(1000)))) == 120
    assert shown("abcdefgh", limit=8) == "'abcd..."


def test_shown_leaves_a_repr_of_just_the_limit_whole():
    assert shown("x" * 118) == repr("x" * 118)
    assert shown("x" * 119).endswith("...")


def test_shown_names_the_type_of_a_value_without_repr():
    assert shown(Unprintable()) == "<Unprintable>"
    assert shown(10**5000) == "<int>"


def test_the_closest_of_the_known_words_is_proposed():
    assert did_you_mean("learning_rat", ["dropout", 3, "learning_rate", "rate"]) == (
        "did you mean 'learning_rate'?"
    )
    assert did_you_mean("momentum", ["dropout", 3]) == ""
    assert did_you_mean(3, ["dropout", 3]) == ""
