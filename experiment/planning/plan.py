"""What a search would ask of a cluster, before it runs."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from experiment.planning.hindrances import Demand, Hindrance, hindrances
from experiment.planning.waves import idle_when_equal, idle_when_exponential, waves
from experiment.results import html
from experiment.results.result import Result, Results
from experiment.results.status import seconds_of
from experiment.results.text import count, printable
from experiment.results.warned import warn_user
from experiment.setup.preparation import Prepared, prepare
from experiment.setup.slot_count import slot_count
from experiment.setup.specification import SearchSpec
from search.errors import InvalidArgument, shown
from search.searcher import batch_of

_HEAD = ("setting", "value", "what it does", "what to do")


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Plan:
    """What a search would ask of a cluster. A notebook shows it as a table.

    Attributes:
        call: The name of the search.
        trials: Of the whole search, those that a run to resume has done included.
        slots: How many run at once at the most, by the settings of cluster and search; more where
            the cluster gets more executors than it was to have.
        slots_now: How many of them fit on the executors that are there; None where nobody knows.
        needs: What a slot asks of an executor: "1 core and 1 GPU".
        gpus: That all slots together have at the most.
        gpus_now: That `slots_now` have.
        batch: Trials between two barriers, where slots wait; None without barriers.
        hindrances: Settings that hurt the search: each with `.setting`, `.value`, `.effect` and
            `.advice`.
    """

    call: str
    trials: int
    slots: int
    slots_now: int | None
    needs: str
    gpus: int
    gpus_now: int | None
    batch: int | None
    hindrances: tuple[Hindrance, ...]

    @property
    def waves(self) -> int:
        """How many trials a slot runs, one after the other, where all take equally long.

        On the slots that there are now; where there are none, or nobody knows, at the most.
        """
        return self._waves(self._counted)

    @property
    def idle(self) -> tuple[float, float]:
        """Shares of the slots' time, of [0, 1), that they wait: at barriers and at the end.

        The first where all trials take equally long; the second where their times are independent
        and exponentially distributed, so that some take much longer than others (A. Rényi: On the
        theory of order statistics, Acta Mathematica Academiae Scientiarum Hungaricae 4, 1953).
        Slots as for `waves`.
        """
        batch = self.batch or self.trials
        return idle_when_equal(batch, self._counted), idle_when_exponential(batch, self._counted)

    def seconds(self, result: Result) -> float | None:
        """Return how many seconds the whole search takes, by trials that have finished.

        Mean time of a trial, times trials by slots, as progress has it: what slots wait, and what
        the start of Spark and TensorFlow takes, is not in it. Slots as for `waves`.

        Args:
            result: Of a run of the same train function; `experiment.load` has it of a run that goes
                on.

        Returns:
            Seconds; None where no trial has finished.

        Raises:
            InvalidArgument: No `Result`.
        """
        if not isinstance(result, Result):
            raise InvalidArgument("result", "a Result, as of experiment.load(run)", shown(result))
        took = [trial.seconds for trial in result.trials if trial.status == "finished"]
        if not took:
            return None
        return seconds_of(self.trials, math.fsum(took) / len(took), self._counted)

    @property
    def _counted(self) -> int:
        return self.slots_now or self.slots

    def _waves(self, slots: int) -> int:
        return waves(self.trials, self.batch or self.trials, slots)

    def __repr__(self) -> str:
        facts = [f"  {name:<8}{text}" for name, text in self._facts]
        hurt = [
            f"  {item.setting} = {item.value}: {item.effect}; {item.advice}"
            for item in self.hindrances
        ]
        head = ["settings that hurt:"] if hurt else ["no setting hurts"]
        return printable("\n".join([f"plan of {self.call}:", *facts, *head, *hurt]), keep="\n")

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        rows = [(item.setting, item.value, item.effect, item.advice) for item in self.hindrances]
        return html.block(
            html.line(f"Plan of {self.call}"),
            html.table(("", ""), self._facts),
            html.table(_HEAD, rows) if rows else html.line("No setting hurts."),
        )

    @property
    def _facts(self) -> list[tuple[str, str]]:
        """What it says, as rows of a table."""
        return [
            ("trials", str(self.trials)),
            ("slots", f"{_now(self.slots_now, self.slots)}; each {self.needs}"),
            ("GPUs", _now(self.gpus_now, self.gpus) if self.gpus else "none"),
            ("waves", self._waves_in_words()),
            ("barrier", f"after each {count(self.batch, 'trial')}" if self.batch else "none"),
            ("idle", self._idle_in_words()),
        ]

    def _waves_in_words(self) -> str:
        numbers = dict.fromkeys((self._counted, self.slots))
        return ", ".join(f"{self._waves(slots)} on {count(slots, 'slot')}" for slots in numbers)

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


def plan(search: Callable[..., Result | Results], *args: Any, **kwargs: Any) -> Plan:
    """Say what a search would ask of the cluster, without running anything.

        experiment.plan(experiment.evolutionary_search, spark, train, bounds, popsize=10)

    The input is checked as by the search itself, up to whether its folder can be written to. As for
    a search, executors of a session that has just begun are waited for, some seconds at the most.

    Args:
        search: `experiment.launch` or another call of a search; not `experiment.executor`.
        *args: Its arguments.
        **kwargs: Its keyword arguments.

    Raises:
        InvalidArgument: Bad input, found as by the search.
    """
    build = getattr(search, "spec", None)
    if build is None:
        raise InvalidArgument("search", "a call such as experiment.launch", shown(search))
    spec: SearchSpec = build(*args, **kwargs)
    return _plan_of(prepare(spec, warn=warn_user))


def _plan_of(prepared: Prepared) -> Plan:
    session, spec = prepared.session, prepared.spec
    told: list[str] = []
    slots = slot_count(spec.searcher.total, spec.settings, session, warn=told.append)
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
        slots=slots,
        slots_now=now,
        needs=str(needs),
        gpus=math.ceil(slots * needs.gpus),
        gpus_now=None if now is None else math.ceil(now * needs.gpus),
        batch=batch_of(spec.searcher),
        hindrances=(*map(_too_many_for_memory, told), *hindrances(demand)),
    )


def _too_many_for_memory(sentence: str) -> Hindrance:
    effect, advice = sentence.rsplit("; ", 1)
    return Hindrance(setting="parallelism", value="None", effect=effect, advice=advice)
