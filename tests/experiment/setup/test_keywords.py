"""Settings as keyword arguments of the public calls."""

import dataclasses
import inspect
import subprocess
import sys
from typing import get_type_hints

import pytest

import experiment
from experiment.setup import keywords
from experiment.setup.keywords import ExecutorKeywords, Keywords, entries, takes_settings
from experiment.setup.settings import Settings

CALLS = [
    experiment.launch,
    experiment.run,
    experiment.evolutionary_search,
    experiment.random_search,
    experiment.bayesian_search,
    experiment.search_each,
    experiment.population_based_training,
    experiment.hyperband_search,
    experiment.distributed_training,
    experiment.executor,
]


@takes_settings
def search(spark, train, direction="max", *, samples=10, **settings):
    """Search."""
    return (spark, train, direction, samples, settings)


def test_the_signature_shows_all_settings_once_and_keyword_only():
    parameters = inspect.signature(search).parameters
    own = ["spark", "train", "direction", "samples"]
    shared = [f.name for f in dataclasses.fields(Settings) if f.name != "direction"]
    assert list(parameters) == own + shared
    for field in dataclasses.fields(Settings):
        if field.name != "direction":
            assert parameters[field.name].kind is inspect.Parameter.KEYWORD_ONLY
            assert parameters[field.name].default == field.default
    assert parameters["direction"].kind is inspect.Parameter.POSITIONAL_OR_KEYWORD


def test_a_decorated_function_keeps_its_arguments_and_its_name():
    assert search(1, 2, "min", samples=3, seed=4) == (1, 2, "min", 3, {"seed": 4})
    assert (search.__name__, search.__doc__) == ("search", "Search.")


def test_the_keywords_for_type_checkers_are_the_settings():
    types = get_type_hints(Settings)
    fields = [field.name for field in dataclasses.fields(Settings)]
    assert get_type_hints(Keywords) == {name: types[name] for name in fields}


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.__name__)
def test_type_checkers_and_the_signature_have_the_same_keywords(call):
    function = inspect.unwrap(call)
    *own, settings = inspect.signature(function, follow_wrapped=False).parameters.values()
    name = settings.annotation.removeprefix("Unpack[").removesuffix("]")
    typed = get_type_hints(getattr(keywords, name))
    assert not typed.keys() & {parameter.name for parameter in own}
    shown = list(inspect.signature(call).parameters)
    assert set(shown) == {parameter.name for parameter in own} | typed.keys()


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.__name__)
def test_help_documents_each_keyword(call):
    documented, settings = entries(inspect.getdoc(call)), entries(inspect.getdoc(Settings))
    parameters = list(inspect.signature(call).parameters)
    assert [name for name in documented if name in parameters] == parameters
    own = inspect.signature(inspect.unwrap(call), follow_wrapped=False).parameters
    for name in parameters:
        if name not in own:
            assert documented[name] == settings[name]


def test_an_executor_accepts_no_setting_that_compares_trials():
    @takes_settings
    def search(**settings):
        """Search."""

    searches = inspect.signature(search).parameters.keys()
    assert searches - inspect.signature(experiment.executor).parameters.keys() == {
        "direction",
        "optimization_key",
        "resume",
        "stopping",
        "max_failures",
        "target",
        "workers_per_trial",
        "strategy",
        "repeats",
    }
    assert not {"name", "preload", "verbose"} & get_type_hints(ExecutorKeywords).keys()


def test_the_calls_work_without_docstrings():
    code = "import experiment; assert experiment.launch.__doc__ is None"
    subprocess.run([sys.executable, "-OO", "-c", code], check=True)


def test_an_unknown_argument_is_named_with_the_call():
    with pytest.raises(TypeError, match=r"launch\(\): got an unexpected keyword argument 'timout'"):
        experiment.launch(None, None, {}, timout=3)
