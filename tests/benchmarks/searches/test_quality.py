"""The parts of the benchmark of searches: problems, methods, comparison, simulation."""

import dataclasses
import itertools
import math
import random

import cocoex
import numpy as np
import pytest

from search.algorithms import Evolution
from search.direction import Direction
from search.random_search import RandomSearch
from search.searcher import Problem as SearchProblem
from search.space.spaces import Float, Space
from tests.benchmarks.searches import comparison
from tests.benchmarks.searches.methods import METHODS, RANDOM, Evaluations, Method, Spent, regrets
from tests.benchmarks.searches.problems import surrogates
from tests.benchmarks.searches.problems.functions import NAMES, Problem, problem
from tests.benchmarks.searches.workers import Simulated, expected_running_time, simulate
from tests.search.fakes import started

WRITTEN = [name for name in NAMES if not any(task in name for task in surrogates.TASKS)]
LINE = Problem("line", Space({"x": Float(0.0, 1.0)}), lambda params: params["x"], 0.0)
OPTIMUM = {
    "network": {
        "learning_rate": 0.001,
        "units": 128,
        "layers": 3,
        "dropout": 0.3,
        "optimizer": "adam",
        "activation": "relu",
    },
    "boosting": {
        "learning_rate": 0.1,
        "trees": 300,
        "depth": 6,
        "min_samples": 10,
        "subsample": 0.7,
        "l2": 1.0,
    },
}


def random_params(space, count):
    rng = random.Random(1)
    return [space.decode([rng.random() for _ in space]) for _ in range(count)]


class TestProblems:
    def test_there_are_23(self):
        assert len(NAMES) == 23

    @pytest.mark.parametrize("name", WRITTEN)
    def test_no_value_is_better_than_the_best(self, name):
        it = problem(name)
        assert min(map(it.value, random_params(it.space, 500))) >= it.best

    @pytest.mark.parametrize("name", [name for name in WRITTEN if name.startswith("BBOB")])
    def test_a_function_of_coco_is_best_at_the_optimum_of_coco(self, name):
        it = problem(name)
        number = int(name.split()[1].strip("f,"))
        optimum = cocoex.BareProblem("bbob", number, len(it.space), 1).best_parameter()
        params = dict(zip(it.space, optimum, strict=True))
        assert it.value(params) == pytest.approx(it.best, abs=1e-9)

    @pytest.mark.parametrize("number", [8, 15])
    def test_a_mixed_function_has_its_best_value_among_its_values(self, number):
        it = problem(f"mixed BBOB f{number}, 5-d")
        optimum = cocoex.BareProblem("bbob", number, 5, 1).best_parameter()
        near = it.space.decode([(x + 5) / 10 for x in optimum])
        values = [it.value(near | {"x2": choice}) for choice in it.space["x2"].values]
        assert min(values) == pytest.approx(it.best, abs=1e-6)
        assert len(set(values)) == 5

    @pytest.mark.parametrize("name", OPTIMUM)
    def test_a_function_written_here_is_best_where_it_should_be(self, name):
        assert problem(name).value(OPTIMUM[name]) == pytest.approx(0, abs=1e-12)

    def test_the_best_choices_are_known(self):
        it = problem("choices")
        choices = [it.space[name].values for name in list(it.space)[:4]]
        values = []
        for combination in itertools.product(*choices):
            rate = 10 ** (0.5 * int(combination[3].split()[1]) - 3)
            params = dict(zip(it.space, (*combination, rate, 0.1), strict=True))
            values.append(it.value(params))
        assert min(values) == pytest.approx(it.best)

    def test_noise_is_as_large_as_the_regret_of_a_good_result(self):
        it = problem("noisy network")
        values = sorted(map(it.value, random_params(it.space, 2000)))
        assert it.noise == pytest.approx(values[20] - it.best, rel=0.5)


class TestSurrogates:
    TASK = dataclasses.replace(surrogates.TASKS["trees on wine"], name="small")
    FITTED = 12

    @pytest.fixture(autouse=True)
    def folder(self, tmp_path, monkeypatch):
        monkeypatch.setattr(surrogates, "_FOLDER", tmp_path)
        return tmp_path

    @pytest.mark.slow
    @pytest.mark.contract
    def test_it_predicts_real_fits_and_is_deterministic(self, folder):
        surrogate = surrogates.Surrogate(self.TASK, self.FITTED)
        again = surrogates.Surrogate(self.TASK, self.FITTED)
        assert len(list(folder.iterdir())) == 1
        for params in random_params(surrogate.space, 20):
            assert surrogate.value(params) == again.value(params) >= surrogate.best
        (results,) = (surrogates.json.loads(file.read_text()) for file in folder.iterdir())
        design = surrogates._design(self.TASK.space, self.FITTED)
        assert surrogates.evaluate(self.TASK, design[0]) == pytest.approx(results[0])
        predicted = [surrogate.value(params) for params in design]
        assert np.corrcoef(predicted, results)[0, 1] > 0.8

    @pytest.mark.parametrize("task", surrogates.TASKS.values(), ids=lambda task: task.name)
    def test_every_task_can_be_fitted(self, task):
        (params,) = random_params(task.space, 1)
        assert math.isfinite(surrogates.evaluate(task, params))


class TestEvaluations:
    def test_the_incumbent_is_chosen_with_noise_and_judged_without(self):
        evaluations = Evaluations(dataclasses.replace(LINE, noise=1.0), 50, seed=0)
        rng = random.Random(2)
        xs = [rng.random() for _ in range(50)]
        seen = [evaluations({"x": x}) for x in xs]
        assert evaluations.incumbents == [xs[int(np.argmin(seen[: n + 1]))] for n in range(50)]
        assert 0.7 < np.std(np.array(seen) - xs) < 1.3

    def test_they_are_counted(self):
        evaluations = Evaluations(LINE, 1, seed=0)
        evaluations({"x": 0.5})
        with pytest.raises(Spent):
            evaluations({"x": 0.1})
        assert evaluations.incumbents == [0.5]


class TestMethods:
    @pytest.mark.slow
    @pytest.mark.contract
    @pytest.mark.parametrize("name", [name for name in METHODS if "Optuna" not in name])
    def test_one_seed_is_one_run_that_gets_better(self, name):
        it = problem("choices")
        first, again = (regrets(METHODS[name], it, [10, 20, 30], seed=3) for _ in range(2))
        assert first == again == sorted(first, reverse=True)
        assert regrets(METHODS[name], it, [10, 20, 30], seed=4) != first

    def test_a_method_that_ends_early_keeps_its_incumbent(self):
        method = Method(lambda space, objective, budget, seed: objective({"x": 0.25}))
        assert regrets(method, LINE, [1, 100], seed=0) == [0.25, 0.25]

    def test_values_beyond_a_method_s_budget_are_missing(self):
        method = dataclasses.replace(METHODS[RANDOM], budget=10)
        within, beyond = regrets(method, LINE, [10, 11], seed=0)
        assert 0 <= within < 1
        assert math.isnan(beyond)


class TestComparison:
    GOOD = np.array([0.1, 0.2, 0.3, 0.4])
    POOR = np.array([0.3, 0.4, 0.3, 0.9])
    BAD = np.array([0.9, 0.8, 0.9, 1.0])

    def test_regret_is_a_share_of_random_search_s(self):
        regret, reference = np.array([[1.0, 3.0], [0.0, 1.0]]), np.array([[4.0, 4.0], [1.0, 1.0]])
        assert comparison.normalised(regret, reference).tolist() == [0.5, 0.5]

    def test_ties_share_a_rank(self):
        shares = {"good": self.GOOD, "poor": self.POOR, "bad": self.BAD}
        assert comparison.mean_ranks(shares) == {"good": 1.125, "poor": 1.875, "bad": 3.0}

    def test_a_tie_is_no_win(self):
        assert comparison.wins(self.GOOD, self.POOR) == 3

    def test_holm(self):
        assert comparison.holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
        assert comparison.holm([0.6, 0.7]) == [1.0, 1.0]

    def test_significance_tests_detect_only_real_differences(self):
        rng = np.random.default_rng(0)
        base = rng.random(23)
        shares = {"a": base, "b": base + rng.normal(0, 0.01, 23), "c": base + 0.5}
        p_values = comparison.against("a", shares)
        assert p_values["b"] > 0.05
        assert p_values["c"] < 0.001
        assert comparison.friedman(shares) < 0.001


class TestWorkers:
    def run(self, searcher, **settings):
        arguments = {"workers": 1, "sigma": 0.0, "target": -1.0, "rng": random.Random(0)}
        return simulate(searcher, lambda params: params["x"], **(arguments | settings))

    def random_search(self, samples):
        rng = random.Random(5)
        problem = SearchProblem(space=LINE.space, samples=samples, rng=rng)
        return RandomSearch(problem)

    def test_one_worker_takes_a_second_for_each(self):
        assert self.run(self.random_search(7)) == Simulated(7.0, False, 1.0)

    def test_workers_share_the_work(self):
        simulated = self.run(self.random_search(8), workers=3)
        assert simulated == Simulated(3.0, False, pytest.approx(8 / 9))

    def test_it_ends_when_the_target_is_reached(self):
        xs = [trial.params["x"] for trial in iter(self.random_search(20).ask, None)]
        simulated = self.run(self.random_search(20), target=min(xs))
        assert simulated == Simulated(1.0 + xs.index(min(xs)), True, 1.0)

    def test_by_generation_all_wait_for_the_longest_evaluation(self):
        searcher = started(
            Evolution,
            LINE.space,
            0,
            generational=True,
            direction=Direction.MIN,
            popsize=50,
            generations=9,
        )
        assert self.run(searcher, workers=50, sigma=1.0).use < 0.3
        assert self.run(self.random_search(2000), workers=50, sigma=1.0).use > 0.8

    def test_runs_that_failed_count_for_the_time_until_success(self):
        runs = [Simulated(10.0, True, 1.0), Simulated(90.0, False, 1.0)]
        assert expected_running_time(runs) == 100.0
        assert expected_running_time(runs[1:]) == math.inf
