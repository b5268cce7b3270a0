"""`experiment.executor`: the contract of `concurrent.futures`, and its own features; real Spark."""

from __future__ import annotations

import dataclasses
import errno
import inspect
import os
import signal
import sys
import threading
import traceback
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    CancelledError,
    ThreadPoolExecutor,
    as_completed,
    wait,
)
from pathlib import Path

import numpy as np
import pytest

import experiment
from experiment.cli.commands import main
from experiment.driver import run_search
from spark_jobs.storage.files import LocalFiles
from tests.experiment import calls
from tests.experiment.waiting import alive, processes_in, wait_until

LONG = 120  # seconds until a failing test stops waiting


@pytest.fixture(scope="class", params=["threads", "spark"])
def pool(request, sparks, tmp_path_factory):
    if request.param == "threads":
        pool = ThreadPoolExecutor(2)
    else:
        logdir = tmp_path_factory.mktemp("runs")
        pool = experiment.executor(sparks.get("local[2]"), logdir=logdir)
    with pool:
        yield pool
    with pytest.raises(RuntimeError, match="cannot schedule new futures after shutdown"):
        pool.submit(int)
    pool.shutdown()  # a second call does nothing


class TestContract:
    """The contract of every executor, checked for the standard library's, too."""

    @pytest.fixture
    def gate(self, tmp_path):
        """A file that lets `calls.wait_for` return; it is created at the end in any case."""
        path = tmp_path / "gate"
        yield path
        path.touch()

    def test_a_call_gets_its_arguments(self, pool):
        future = pool.submit(calls.call_with, 1, "two", fn=3, self=(4, None))
        assert future.result(LONG) == ((1, "two"), {"fn": 3, "self": (4, None)})
        assert future.done()
        assert not future.running()
        assert not future.cancelled()
        assert future.exception() is None

    @pytest.mark.parametrize("name", ["\udc80", "x" * 3_000_000, "a\nb"], ids=ascii)
    def test_the_name_of_a_function_may_be_anything(self, pool, name):
        def function():
            return 5

        function.__name__ = name
        assert pool.submit(function).result(LONG) == 5
        assert pool.submit(int).result(LONG) == 0

    def test_map_keeps_the_order(self, pool):
        assert list(pool.map(pow, [2, 3, 4], range(5), timeout=LONG)) == [1, 3, 16]

    def test_map_gives_up_after_its_timeout(self, pool, gate):
        with pytest.raises(TimeoutError):
            list(pool.map(calls.wait_for, [gate], timeout=0.05))

    def test_map_raises_the_error_of_its_call(self, pool):
        results = pool.map(divmod, [1, 2, 3], [1, 0, 1], timeout=LONG)
        assert next(results) == (1, 0)
        with pytest.raises(ZeroDivisionError):
            next(results)

    def test_a_future_raises_the_exception_of_its_call(self, pool):
        future = pool.submit(calls.fail, "what went wrong")
        error = future.exception(LONG)
        assert type(error) is ValueError
        assert error.args == ("what went wrong",)
        with pytest.raises(ValueError, match="^what went wrong$"):
            future.result()

    def test_a_future_raises_the_memory_error_of_its_call(self, pool):
        assert type(pool.submit(bytearray, 10**15).exception(LONG)) is MemoryError

    def test_each_callback_is_called_once_also_if_added_late(self, pool, gate):
        future = pool.submit(calls.wait_for, gate, 5)
        called = []
        future.add_done_callback(lambda done: called.append(done.result()))
        future.add_done_callback(lambda done: called.append(done is future))
        assert called == []
        gate.touch()
        wait_until(lambda: len(called) == 2)
        future.add_done_callback(called.append)
        assert called == [5, True, future]

    def test_a_callback_may_submit(self, pool):
        more = []
        future = pool.submit(int, "1")
        future.add_done_callback(lambda done: more.append(pool.submit(int, "2")))
        wait_until(lambda: more)
        assert more[0].result(LONG) == 2

    def test_a_call_can_be_cancelled_before_it_begins(self, pool, gate):
        running = [pool.submit(calls.wait_for, gate, number) for number in range(2)]
        wait_until(lambda: all(future.running() for future in running))
        waiting = [pool.submit(int, "7") for _ in range(2)]
        assert not waiting[0].running()
        assert waiting[0].cancel()
        assert waiting[0].cancelled()
        assert not running[0].cancel()
        with pytest.raises(CancelledError):
            waiting[0].result(LONG)
        gate.touch()
        done, rest = wait([*running, *waiting], timeout=LONG)
        assert not rest
        assert len(done) == 4
        assert [future.result() for future in running] == [0, 1]
        assert waiting[1].result() == 7

    def test_as_completed_yields_the_fastest_call_first(self, pool, gate):
        slow, fast = pool.submit(calls.wait_for, gate, "slow"), pool.submit(str, "fast")
        done, _ = wait([slow, fast], timeout=LONG, return_when=FIRST_COMPLETED)
        assert done == {fast}
        gate.touch()
        assert {future.result() for future in as_completed([slow, fast], LONG)} == {"slow", "fast"}

    def test_result_waits_no_longer_than_its_timeout(self, pool, gate):
        future = pool.submit(calls.wait_for, gate)
        with pytest.raises(TimeoutError):
            future.result(0.01)
        with pytest.raises(TimeoutError):
            future.exception(0.01)

    def test_several_threads_may_submit(self, pool):
        futures = []

        def submit():
            futures.extend(pool.submit(abs, -number) for number in range(5))

        threads = [threading.Thread(target=submit) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(future.result(LONG) for future in futures) == sorted([*range(5)] * 3)


@pytest.mark.parametrize("cancel", [True, False])
@pytest.mark.parametrize("kind", ["threads", "spark"])
def test_shutdown_cancels_waiting_calls_only_on_request(request, logdir, tmp_path, kind, cancel):
    if kind == "threads":
        pool = ThreadPoolExecutor(1)
    else:
        pool = experiment.executor(request.getfixturevalue("spark"), logdir=logdir, parallelism=1)
    first = pool.submit(calls.wait_for, tmp_path / "gate", 1)
    wait_until(first.running)
    second = pool.submit(int, "2")
    pool.shutdown(wait=False, cancel_futures=cancel)
    with pytest.raises(RuntimeError, match="cannot schedule new futures after shutdown"):
        pool.submit(int, "3")
    assert first.running()
    assert second.cancelled() == cancel
    (tmp_path / "gate").touch()
    pool.shutdown()
    assert first.result(0) == 1
    assert second.cancelled() == cancel
    assert cancel or second.result(0) == 2


def test_calls_are_trials_of_a_run(spark, logdir):
    big = np.arange(1_000_000.0)  # larger than a message may be, in both directions

    def mean_and_more(array, scale):
        experiment.report(mean=array.mean())
        print("in a call")
        array *= scale  # the call has its own copy
        return {"folder": experiment.logdir(), "pid": os.getpid(), "array": array, 5: (None, [])}

    with experiment.executor(spark, logdir=logdir, name="means") as pool:
        assert pool.parallelism == 2
        assert Path(pool.logdir).parent == Path(logdir)
        futures = [pool.submit(mean_and_more, big, scale) for scale in (2, 3)]
        values = [future.result(LONG) for future in futures]
        sent = sorted(file.stat().st_size for file in Path(pool.logdir, "calls").iterdir())
        assert sent[-1] == big.nbytes  # once
        assert sum(sent[:-1]) < 10_000

        future = pool.submit(lambda: np.random)
        error = future.exception(LONG)
        assert type(error) is experiment.CallFailed
        assert error.kind == "invalid value"
        assert "expected None, a bool, a number" in str(error)
        assert "of type module" in str(error)

        error = pool.submit(calls.fail_in_its_own_way).exception(LONG)
        assert (type(error), error.kind) == (experiment.CallFailed, "user error")
        assert error.failure.message == "tests.experiment.calls.OwnError: a\x1b[2Jb"
        assert "in fail_in_its_own_way" in str(error)
        assert "\x1b" not in str(error)

        error = pool.submit(calls.fail, "hello").exception(LONG)
        shown = "".join(traceback.format_exception(error))
        assert "in fail" in shown
        assert shown.endswith("ValueError: hello\n")
        assert error.__cause__.kind == "user error"

        error = pool.submit(os._exit, 3).exception(LONG)
        assert (type(error), error.kind) == (experiment.CallFailed, "exit")

        with pytest.raises(experiment.InvalidArgument, match="^fn: expected a function, got 3"):
            pool.submit(3)
        lock = threading.Lock()
        with pytest.raises(experiment.InvalidArgument, match=r"^args\[1\]: .*'_thread.lock'"):
            pool.submit(print, big, lock)
        with pytest.raises(experiment.InvalidArgument, match="^fn: .* refers to 'lock'"):
            pool.submit(lambda: lock)
        with pytest.raises(
            experiment.InvalidArgument, match="^size: .*more than 64 MiB.* pass an array"
        ):
            pool.submit(print, big, size=b"\1" * (65 << 20))

    assert values[0]["pid"] != values[1]["pid"]
    assert [value["array"][2] for value in values] == [4.0, 6.0]
    assert values[0][5] == (None, [])
    assert big[2] == 2.0
    assert not Path(pool.logdir, "calls").exists()
    result = experiment.load(pool.logdir)
    assert [trial.status for trial in result.trials] == ["finished"] * 2 + ["failed"] * 4
    assert result.trials[0].params["function"] == "mean_and_more"
    assert result.total == 6
    assert result.trials[1].logdir == values[1]["folder"]
    assert "in a call" in Path(values[1]["folder"], "stdout.log").read_text()


def test_submit_does_not_wait_until_a_call_is_written(spark, logdir, monkeypatch):
    made, files, write = threading.Event(), [], LocalFiles.write

    def write_later(self, location, source, length=None):
        if location.parent.name == "calls":
            if not made.wait(LONG):
                raise OSError("it was waited for")
            files.append(location.name)
        write(self, location, source, length)

    monkeypatch.setattr(LocalFiles, "write", write_later)
    with experiment.executor(spark, logdir=logdir) as pool:
        values = pool.map(abs, range(-30, 0))
        made.set()
        assert list(values) == [*range(30, 0, -1)]
    assert len(files) <= 2  # the first, and all that were submitted while it was written


def test_a_call_that_cannot_be_written_fails(spark, logdir, monkeypatch):
    def refuse(self, location, source, length=None):
        if location.parent.name == "calls":
            raise OSError(errno.ENOSPC, "No space left on device", location.path)
        write(self, location, source, length)

    write = LocalFiles.write
    monkeypatch.setattr(LocalFiles, "write", refuse)
    with experiment.executor(spark, logdir=logdir, parallelism=1) as pool:
        error = pool.submit(int, "1").exception(LONG)
        assert (type(error), error.kind) == (experiment.CallFailed, "machine")
        assert "the call cannot be written: [Errno 28] No space left on device" in str(error)
        monkeypatch.setattr(LocalFiles, "write", write)
        assert pool.submit(int, "2").result(LONG) == 2


def shuts_down_in_a_callback(pool, future):
    """Let a callback of a future shut its executor down; return a list that then has an item."""
    returned = []

    def shut_down(done):
        pool.shutdown()
        returned.append(done)

    future.add_done_callback(shut_down)
    return returned


def test_shutdown_in_a_callback_does_not_wait_for_the_callback(spark, logdir):
    pool = experiment.executor(spark, logdir=logdir, parallelism=1)
    returned = shuts_down_in_a_callback(pool, pool.submit(int, "1"))
    wait_until(lambda: returned)
    pool.shutdown()


def test_shutdown_in_a_callback_of_a_call_that_cannot_be_written(spark, logdir, monkeypatch):
    def refuse(self, location, source, length=None):
        raise OSError(errno.ENOSPC, "No space left on device", location.path)

    pool = experiment.executor(spark, logdir=logdir, parallelism=1)
    with monkeypatch.context() as patch:
        patch.setattr(LocalFiles, "write", refuse)
        returned = shuts_down_in_a_callback(pool, pool.submit(int, "1"))
        wait_until(lambda: returned)
    pool.shutdown()


def test_shutdown_in_a_callback_of_an_interrupted_call(spark, logdir, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        with experiment.executor(spark, logdir=logdir, parallelism=1) as pool:
            running = pool.submit(calls.hang_in, tmp_path)
            returned = shuts_down_in_a_callback(pool, running)
            wait_until(lambda: processes_in(tmp_path))
            raise KeyboardInterrupt
    assert returned == [running]


@pytest.mark.slow
@pytest.mark.contract
@pytest.mark.usefixtures("own_zygotes")
def test_a_call_whose_slot_was_lost_runs_again(spark, logdir, tmp_path):
    def lose_the_first_slot():
        import psutil

        marker = tmp_path / "tried"
        if not marker.exists():
            marker.touch()
            zygote = psutil.Process().parent()
            zygote.parent().kill()
            calls.wait_for(tmp_path / "never")
        return experiment.logdir()

    with experiment.executor(spark, logdir=logdir, parallelism=1) as pool:
        assert pool.submit(lose_the_first_slot).result(LONG).endswith("/000000-2")
        assert pool.submit(int, "5").result(LONG) == 5


@pytest.mark.slow
@pytest.mark.contract
def test_a_call_beyond_its_timeout_is_killed(spark, logdir, tmp_path):
    with experiment.executor(spark, logdir=logdir, parallelism=1, timeout=5) as pool:
        error = pool.submit(calls.hang_in, tmp_path).exception(LONG)
        assert (type(error), error.kind) == (experiment.CallFailed, "time")

        def returns_5():
            call = pool.submit(int, "5")
            return call.exception(LONG) is None and call.result() == 5

        wait_until(returns_5)  # a busy machine may keep even this call beyond the limit
    wait_until(lambda: not alive(processes_in(tmp_path)))


@pytest.mark.slow
@pytest.mark.contract
def test_ctrl_c_ends_the_calls(spark, logdir, tmp_path, capsys):
    def interrupt():
        wait_until(lambda: processes_in(tmp_path))
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    with pytest.raises(KeyboardInterrupt):
        with experiment.executor(spark, logdir=logdir, parallelism=1) as pool:
            running, waiting = pool.submit(calls.hang_in, tmp_path), pool.submit(int, "2")
            thread.start()
            running.result(LONG)
    thread.join()
    wait_until(lambda: not alive(processes_in(tmp_path)))
    assert waiting.cancelled()
    with pytest.raises(experiment.ExecutorFailed, match="^cancelled$"):
        running.result(0)
    with pytest.raises(experiment.ExecutorFailed, match="^cancelled$"):
        pool.submit(int)
    main(["show", pool.logdir])
    shown = capsys.readouterr().out
    assert "cancelled" in shown
    assert "resume" not in shown  # the calls are gone with their caller


def test_a_stopped_session_ends_the_calls(spark, logdir, tmp_path):
    pool = experiment.executor(spark, logdir=logdir, parallelism=1)
    running, waiting = pool.submit(calls.hang_in, tmp_path), pool.submit(int, "2")
    wait_until(lambda: processes_in(tmp_path))
    spark.stop()
    for future in (running, waiting):
        with pytest.raises(BrokenExecutor, match="the SparkSession was stopped"):
            future.result(LONG)
    with pytest.raises(experiment.ExecutorFailed, match="the SparkSession was stopped"):
        pool.submit(int)
    pool.shutdown()
    wait_until(lambda: not alive(processes_in(tmp_path)))


@pytest.mark.parametrize("isolation", ["spawn", "none"])
def test_calls_are_isolated_as_trials_are(spark, logdir, isolation):
    with experiment.executor(spark, logdir=logdir, parallelism=1, isolation=isolation) as pool:
        first, second = (pool.submit(os.getpid).result(LONG) for _ in range(2))
        assert (first == second) == (isolation == "none")
        assert type(pool.submit(int, "x").exception(LONG)) is ValueError


def test_an_executor_that_cannot_begin_says_why(spark, logdir, monkeypatch):
    def full(*args):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(run_search, "Board", full)
    with pytest.raises(experiment.ExecutorFailed, match="No space left on device"):
        experiment.executor(spark, logdir=logdir)


def test_an_executor_whose_driver_cannot_be_imported_raises_the_error(spark, logdir, monkeypatch):
    monkeypatch.setitem(sys.modules, run_search.__name__, None)
    making = experiment.submit(experiment.executor, spark, logdir=logdir)
    with pytest.raises(ImportError, match="run_search"):
        making.result(LONG)


def test_bad_settings_are_refused_before_any_job(spark, logdir):
    of_searches = {field.name for field in dataclasses.fields(experiment.Settings)}
    for name in of_searches - inspect.signature(experiment.executor).parameters.keys():
        with pytest.raises(TypeError, match=f"'{name}'"):
            experiment.executor(spark, **{name: None})
    with pytest.raises(experiment.InvalidArgument, match="parallelism"):
        experiment.executor(spark, parallelism=0)
    with pytest.raises(experiment.InvalidArgument, match="spark"):
        experiment.executor("local[2]")
    with pytest.raises(experiment.InvalidArgument, match="logdir"):
        experiment.executor(spark, logdir="/proc/nobody")


def test_without_joblib_the_error_says_what_to_install(monkeypatch):
    monkeypatch.delitem(sys.modules, "experiment.background.joblib_backend", raising=False)
    monkeypatch.setitem(sys.modules, "joblib.parallel", None)
    with pytest.raises(ImportError, match="joblib_backend.* needs joblib: pip install joblib"):
        experiment.SparkExecutor.joblib_backend(None)


@pytest.fixture(scope="class")
def shared_pool(sparks, tmp_path_factory):
    pool = experiment.executor(sparks.get("local[2]"), logdir=tmp_path_factory.mktemp("runs"))
    with pool:
        yield pool


class TestOthers:
    """Libraries that accept an executor."""

    @pytest.mark.slow
    @pytest.mark.contract
    def test_scikit_learn_by_map(self, shared_pool):
        from sklearn.datasets import load_iris
        from sklearn.model_selection import cross_validate
        from sklearn.tree import DecisionTreeClassifier

        x, y = load_iris(return_X_y=True)

        def scores(depth):
            model = DecisionTreeClassifier(max_depth=depth, random_state=0)
            return cross_validate(model, x, y)["test_score"]

        found = list(shared_pool.map(scores, [1, 4]))
        assert [array.tolist() for array in found] == [scores(1).tolist(), scores(4).tolist()]

    @pytest.mark.slow
    @pytest.mark.contract
    def test_scikit_learn_by_joblib(self, shared_pool):
        import joblib
        from sklearn.datasets import load_iris
        from sklearn.model_selection import GridSearchCV
        from sklearn.tree import DecisionTreeClassifier

        x, y = load_iris(return_X_y=True)
        search = GridSearchCV(DecisionTreeClassifier(random_state=0), {"max_depth": [1, 4]}, cv=2)
        here = search.fit(x, y).cv_results_["mean_test_score"]
        before = experiment.load(shared_pool.logdir).done
        with joblib.parallel_config(backend=shared_pool.joblib_backend()):
            assert joblib.effective_n_jobs() == 2
            assert joblib.effective_n_jobs(-2) == 1
            there = search.fit(x, y).cv_results_["mean_test_score"]
            with pytest.raises(ZeroDivisionError):
                joblib.Parallel()(joblib.delayed(divmod)(1, number) for number in (1, 0, 2))
        assert there.tolist() == here.tolist()
        wait_until(lambda: experiment.load(shared_pool.logdir).done >= before + 4)
        assert shared_pool.submit(int, "3").result(LONG) == 3

    def test_nevergrad(self, shared_pool):
        nevergrad = pytest.importorskip("nevergrad")

        def distance(x):
            return float(np.sum((x - 0.5) ** 2))

        optimizer = nevergrad.optimizers.OnePlusOne(
            parametrization=nevergrad.p.Array(shape=(2,)), budget=12, num_workers=2
        )
        best = optimizer.minimize(distance, executor=shared_pool, batch_mode=False)
        assert optimizer.num_tell == 12
        assert best.value.shape == (2,)
