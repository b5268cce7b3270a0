"""The plan of a search: its demand on a cluster, computed before it runs."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ParamSpec

from experiment.planning.hindrances import Demand, Hindrance, hindrances
from experiment.planning.slot_use import idle_when_equal, idle_when_exponential, trials_per_slot
from experiment.planning.warm_slots import warm_slots
from experiment.results import html
from experiment.results.result import Result, Results
from experiment.results.status import seconds_of
from experiment.results.text import count, printable
from experiment.results.trial_result import TrialResult
from experiment.results.warned import warn_user
from experiment.setup.preparation import Prepared, prepare
from experiment.setup.slot_count import slot_count
from experiment.setup.specification import SearchSpec
from experiment.setup.workers import Workers
from search.errors import InvalidArgument, prefixed, shown
from search.searcher import batch_of, why_exhausted
from spark_jobs.strategies.settings import name_of

P = ParamSpec("P")

_HEAD = ("setting", "value", "what it does", "what to do")


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Plan:
    """A search's demand on a cluster. A notebook shows it as a table.

    Attributes:
        call: The name of the call, such as 'launch'.
        trials: Number of trials of the whole search, including those of a run to resume.
        slots: Maximum slots at once, by the settings of cluster and search; more if the cluster
            gets more executors than configured.
        slots_now: Number of slots that fit on the current executors; None if unknown.
        needs: Resources per slot: "1 core and 1 GPU".
        gpus: Maximum GPUs of all slots together.
        gpus_now: GPUs of `slots_now`; None if unknown.
        exhausted: Why there are fewer trials than the search was asked for; None if there are not.
        batch: Number of trials between two barriers, where slots wait; None without barriers.
        preload: The modules that are imported before the first trial.
        keep_warm: Seconds for which each executor keeps them imported after a search, for all its
            slots; 0 if each slot imports them for each search.
        slots_warm: Number of slots of `slots_now` whose executors keep them imported now; None if
            unknown, as in Spark Connect and while other jobs have all cores.
        workers: Number of slots of each trial, or the least and the greatest number.
        strategy: How they train together: 'mirrored', 'jax', 'downpour', 'codistillation',
            or None.
        precision: The precision in which Keras computes: 'mixed_bfloat16', 'mixed_float16', or None
            for the one that the train function sets.
        hindrances: Settings that hurt the search, each with `.setting`, `.value`, `.effect` and
            `.advice`.
    """

    call: str
    trials: int
    exhausted: str | None
    slots: int
    slots_now: int | None
    needs: str
    gpus: int
    gpus_now: int | None
    batch: int | None
    preload: tuple[str, ...]
    keep_warm: float
    slots_warm: int | None
    workers: int | tuple[int, int]
    strategy: str | None
    precision: str | None
    hindrances: tuple[Hindrance, ...]

    @property
    def trials_per_slot(self) -> int:
        """Number of trials that a slot runs, one after the other, if all take equally long.

        Computed for `slots_now`, or for `slots` if that is 0 or unknown.
        """
        return self._per_slot(self._counted)

    @property
    def idle(self) -> tuple[float, float]:
        """Shares of [0, 1) of the slots' time that they wait, at barriers and at the end.

        The first if all trials take equally long; the second if their times are independent and
        exponentially distributed, so that some take much longer than others (A. Rényi: On the
        theory of order statistics, Acta Mathematica Academiae Scientiarum Hungaricae 4, 1953). For
        the same slots as `trials_per_slot`.
        """
        batch = self.batch or self.trials
        at_once = self._workers.at_once(self._counted)
        return idle_when_equal(batch, at_once), idle_when_exponential(batch, at_once)

    def seconds(self, result: Result) -> float | None:
        """Estimate the time of the whole search from finished trials.

        The mean time of a trial, times trials per slot, as in the progress display. Waiting slots
        and the start of Spark and TensorFlow are not included. For the same slots as
        `trials_per_slot`.

        Args:
            result: The result of a run of the same train function; `experiment.load` returns that
                of a run in progress, too.

        Returns:
            Seconds; None if no trial has finished.

        Raises:
            InvalidArgument: `result` is no `Result`.
        """
        if not isinstance(result, Result):
            raise InvalidArgument("result", "a Result, e.g. experiment.load(run)", shown(result))
        took = [trial.seconds for trial in result.trials if trial.status == "finished"]
        if not took:
            return None
        at_once = self._workers.at_once(self._counted)
        return seconds_of(self.trials, math.fsum(took) / len(took), at_once)

    @property
    def _workers(self) -> Workers:
        return Workers.read("workers", self.workers)

    @property
    def _counted(self) -> int:
        return self._workers.of_use(self.slots_now or 0) or self.slots

    def _per_slot(self, slots: int) -> int:
        at_once = self._workers.at_once(slots)
        return trials_per_slot(self.trials, self.batch or self.trials, at_once)

    def __repr__(self) -> str:
        facts = [f"  {name:<9}{text}" for name, text in self._facts]
        hurt = [
            f"  {item.setting} = {item.value}: {item.effect}; {item.advice}"
            for item in self.hindrances
        ]
        head = ["settings that hurt:"] if hurt else ["no setting hurts"]
        return printable("\n".join([f"plan of {self.call}:", *facts, *head, *hurt]), keep="\n")

    def _repr_html_(self) -> str:
        """Return the plan as HTML for a notebook."""
        rows = [(item.setting, item.value, item.effect, item.advice) for item in self.hindrances]
        return html.block(
            html.line(f"Plan of {self.call}"),
            html.table(("", ""), self._facts),
            html.table(_HEAD, rows) if rows else html.line("No setting hurts."),
        )

    @property
    def _facts(self) -> list[tuple[str, str]]:
        """The names and values of the table's rows."""
        return [
            ("trials", f"{self.trials}; {self.exhausted}" if self.exhausted else f"{self.trials}"),
            ("slots", f"{_now(self.slots_now, self.slots)}; each {self.needs}{self._together}"),
            ("GPUs", _now(self.gpus_now, self.gpus) if self.gpus else "none"),
            *([("dtype", self.precision)] if self.precision else []),
            ("preload", self._preload_in_words()),
            ("per slot", self._per_slot_in_words()),
            ("barrier", f"after each {count(self.batch, 'trial')}" if self.batch else "none"),
            ("idle", self._idle_in_words()),
        ]

    @property
    def _together(self) -> str:
        if self.workers == 1:
            return ""
        return f"; {self._workers} for each trial{prefixed(', ', self.strategy or '')}"

    def _preload_in_words(self) -> str:
        if not self.preload:
            return "nothing"
        modules = ", ".join(self.preload)
        if not self.keep_warm:
            return f"{modules}; in each slot"
        kept = f"{modules}; once per executor, kept for {self.keep_warm:g} s after a search"
        if self.slots_warm is None:
            return kept
        return f"{kept}, kept now for {self.slots_warm} of {count(self.slots_now or 0, 'slot')}"

    def _per_slot_in_words(self) -> str:
        numbers = dict.fromkeys((self._counted, self.slots))
        return ", ".join(
            f"{count(self._per_slot(slots), 'trial')} with {count(slots, 'slot')}"
            for slots in numbers
        )

    def _idle_in_words(self) -> str:
        equal, spread = (f"{share:.0%}" for share in self.idle)
        text = (
            f"{equal} of the slots' time if trials take equally long, {spread} if their times are "
            "exponential"
        )
        if self.batch is None:
            return text
        equal, spread = (f"{share:.0%}" for share in replace(self, batch=None).idle)
        return f"{text}; without a barrier {equal} and {spread}"


def _now(now: int | None, most: int) -> str:
    return f"{most} at most" if now is None else f"{now} now, {most} at most"


def plan(
    search: Callable[P, Result | Results | TrialResult], *args: P.args, **kwargs: P.kwargs
) -> Plan:
    """Return a search's demand on the cluster, without running it.

        experiment.plan(experiment.evolutionary_search, spark, train, bounds, popsize=10)

    The arguments are checked as by the search itself, including whether its folder is writable. In
    a session that has just started, it waits some seconds for executors, as a search does. If the
    session has run jobs before, a short job looks for what executors keep imported.

    Args:
        search: `experiment.launch` or another search; not `experiment.executor`.
        *args: Arguments of the search.
        **kwargs: Keyword arguments of the search.

    Raises:
        InvalidArgument: An argument is invalid, as for the search.
    """
    build = getattr(search, "spec", None)
    if build is None:
        raise InvalidArgument("search", "a call such as experiment.launch", shown(search))
    spec: SearchSpec = build(*args, **kwargs)
    return _plan_of(prepare(spec, warn=warn_user))


def _plan_of(prepared: Prepared) -> Plan:
    session, spec = prepared.session, prepared.spec
    warnings: list[str] = []
    slots = slot_count(
        spec.searcher.total,
        spec.settings,
        session,
        preload=prepared.preload.modules,
        warn=warnings.append,
        workers_argument=spec.workers_argument,
    )
    cluster = session.cluster()
    needs = session.task_needs
    fits = [executor.tasks(needs) for executor in cluster.executors or ()]
    fit = cluster.tasks(needs)
    now = None if fit is None else min(fit, slots)
    cores = session.setting("spark.executor.cores")
    demand = Demand(
        prepared=prepared,
        cluster=cluster,
        slots=slots,
        now=now,
        cpus=needs.cpus,
        per_executor=max(fits) if fits else None if cores is None else int(cores) // needs.cpus,
        idle=sum(executor.cores for executor in cluster.executors or ()) - sum(fits) * needs.cpus,
    )
    return Plan(
        call=spec.call,
        trials=spec.searcher.total,
        exhausted=why_exhausted(spec.searcher),
        slots=slots,
        slots_now=now,
        needs=str(needs),
        gpus=math.ceil(slots * needs.gpus),
        gpus_now=None if now is None else math.ceil(now * needs.gpus),
        batch=batch_of(spec.searcher),
        preload=prepared.preload.modules,
        keep_warm=prepared.keep_warm,
        slots_warm=warm_slots(prepared, now),
        workers=spec.settings.workers_per_trial,
        strategy=None if prepared.strategy is None else name_of(prepared.strategy),
        precision=spec.settings.precision,
        hindrances=(*map(_too_many_for_memory, warnings), *hindrances(demand)),
    )


def _too_many_for_memory(sentence: str) -> Hindrance:
    effect, advice = sentence.rsplit("; ", 1)
    return Hindrance(setting="parallelism", value="None", effect=effect, advice=advice)
