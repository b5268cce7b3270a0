"""Speed of one training over several workers: `make bench-training`.

Prints a table of ratios. Both sides of a ratio are measured in this run, in turns, since absolute
times mean little on a machine that is shared. Tables of all-reduces on emulated networks follow,
for which it has to run as root; otherwise a line says what is missing.
"""

from __future__ import annotations

import argparse
import signal
import statistics
import sys
from collections.abc import Callable
from typing import NamedTuple

from spark_jobs.trial.precision import why_slow
from tests.benchmarks.training import (
    digits,
    kills,
    lbfgs,
    mirrored_steps,
    out_of_step,
    planned_speed,
    training_starts,
)
from tests.benchmarks.training.all_reduce import emulated_rings, rings
from tests.benchmarks.training.half_precision import share_of_bfloat16

_KILLS = 20
_SEEDS = 10
_SIZES = (  # of vectors to reduce: in words, in numbers, rounds, bar
    ("4 bytes", 1, 25, ""),
    ("0.1 MB", rings.MEGABYTES // 10, 25, ""),
    ("1 MB", rings.MEGABYTES, 25, ""),
    ("10 MB", 10 * rings.MEGABYTES, 25, "<= 1"),
    ("67 MB", 67 * rings.MEGABYTES, 7, ""),
)


class Row(NamedTuple):
    """A measured value.

    Attributes:
        measure: What was measured.
        value: The value.
        bar: What the project requires.
    """

    measure: str
    value: str
    bar: str


def rings_against_tensorflow() -> list[Row]:
    """Compare all-reduces of two processes by size: ours, encrypted, and TensorFlow's, open."""
    rounds = {numbers: count for _, numbers, count, _ in _SIZES}
    found = rings.measure([rings.OURS, rings.TENSORFLOW], 2, rounds)
    rows = []
    for size, numbers, _, bar in _SIZES:
        ours, others = (found[name][numbers] for name in (rings.OURS, rings.TENSORFLOW))
        wall, processor = (
            statistics.median(took[column] for took in ours)
            / statistics.median(took[column] for took in others)
            for column in (0, 1)
        )
        name = f"all-reduce of {size}, 2 processes: ours, encrypted / TensorFlow's ring"
        rows += [
            Row(name, f"{wall:.2f}", bar),
            Row(f"{name}, processor time", f"{processor:.2f}", ""),
        ]
    return rows


def kills_of_workers() -> list[Row]:
    """Kill a random worker of each of some searches, at a random moment."""
    found = kills.kills(_KILLS)
    right = sum(killed.right for killed in found)
    seconds = statistics.median(killed.seconds for killed in found)
    name = f"{_KILLS} kills of a random worker at random moments"
    return [
        Row(f"{name}: searches that finish with the right value", str(right), str(_KILLS)),
        Row(f"{name}: s from kill to resumed training, median", f"{seconds:.1f}", "<= 30"),
    ]


def overhead_of_fit() -> list[Row]:
    """Measure how much longer a step of `model.fit` that computes nothing is on two workers."""
    name = "model.fit, steps that compute nothing: 2 workers - 1, ms a step"
    return [Row(name, f"{mirrored_steps.overhead_of_fit():.1f}", "<= 20")]


def speed_of_fit() -> list[Row]:
    """Compare `model.fit` on two workers and on one, with steps that take long."""
    name = "model.fit, steps of 200 ms and 4 MB of gradients: speed of 2 workers / 1"
    return [Row(name, f"{mirrored_steps.speed_of_fit():.2f}", ">= 1.8")]


def share_of_convolutions() -> list[Row]:
    """Compare the processor time of each of two workers with that of one, for convolutions."""
    name = "model.fit, convolutions: processor time of a step on each of 2 workers / on one"
    return [Row(name, f"{mirrored_steps.share_of_convolutions():.2f}", "")]


def planned_and_measured_speed() -> list[Row]:
    """Compare what `plan_training` predicts for two workers with what they do."""
    planned, measured = planned_speed.of_two()
    name = "plan_training, steps of 200 ms and 4 MB of gradients: speed of 2 workers / 1"
    return [
        Row(f"{name}, planned", f"{planned:.2f}", ""),
        Row(f"{name}, measured", f"{measured:.2f}", ""),
        Row("planned / measured - 1", f"{planned / measured - 1:+.0%}", "-20 % to 20 %"),
    ]


def starts_of_trainings() -> list[Row]:
    """Compare the start of a search's second training with a script and with a barrier stage."""
    ours, script, stage = training_starts.starts()
    name = "start to first step, 2 workers: a search's second training"
    return [
        Row(
            f"{name} / the second execution of a script with TF_CONFIG",
            f"{ours / script:.2f}",
            "<= 0.5",
        ),
        Row(f"{name} / a session's first barrier stage", f"{ours / stage:.2f}", "<= 0.1"),
    ]


def accuracy_of_downpour(seeds: int = _SEEDS) -> list[Row]:
    """Compare models of the digits that two workers train out of step with those of one worker."""
    one, *others = out_of_step.downpour(seeds)
    name = f"digits, {seeds} seeds, same samples: accuracy"
    return [
        Row(f"{name} of one worker, %", f"{100 * one.mean:.2f}", ""),
        *(
            Row(f"{name}, 2 workers by rule={rule!r} - one worker, %", _apart(each), bar)
            for each, rule, bar in zip(others, ("downpour", "easgd"), (">= -1", ""), strict=True)
        ),
    ]


def large_batches() -> list[Row]:
    """Compare the accuracy of 8 times the batch, by its learning rate, with the small batch's."""
    found = digits.of_batches(_SEEDS)
    small = found.pop("small")
    name = f"digits, mean of {_SEEDS} seeds: accuracy of batches of"
    rates = {
        "scaled, warmed up": "linear scaling and warm-up",
        "scaled": "linear scaling alone",
        "neither": "the rate of 16",
    }
    return [
        Row(f"{name} 16", f"{small.mean:.4f}", ""),
        *(
            Row(
                f"{name} 128 - 16, {rates[kind]}",
                f"{scores.mean - small.mean:+.4f}",
                ">= -0.01" if kind == "scaled, warmed up" else "",
            )
            for kind, scores in found.items()
        ),
    ]


def batch_size_found() -> list[Row]:
    """Compare the batch that `auto_batch_size` finds with the fastest found by hand."""
    found, best, ratio = digits.found_and_best_batch()
    name = f"auto_batch_size, digits: speed of the batch found ({found}) / best by hand ({best})"
    return [Row(name, f"{ratio:.2f}", ">= 0.9")]


def half_precision() -> list[Row]:
    """Compare the time of a step in 16 bits with that in 32, on this processor."""
    is_slow = why_slow("mixed_bfloat16", gpus=0)
    processor = "neither AMX nor AVX512-BF16" if is_slow else "AMX or AVX512-BF16"
    name = f"precision='mixed_bfloat16', a processor with {processor}: time of a step / in 32 bits"
    return [Row(name, f"{share_of_bfloat16():.2f}", "")]


def hogwild() -> list[Row]:
    """Compare accuracy and speed of several threads with those of one."""
    found = digits.of_threads(_SEEDS)
    one = found.pop(1)
    name = f"Hogwild on the digits, mean of {_SEEDS} seeds"
    rows = [Row(f"{name}: accuracy of 1 thread", f"{one.mean:.4f}", "")]
    for threads, scores in found.items():
        faster = statistics.median(scores.speed) / statistics.median(one.speed)
        rows += [
            Row(
                f"{name}: accuracy of {threads} threads - 1",
                f"{scores.mean - one.mean:+.4f}",
                ">= -0.01",
            ),
            Row(f"{name}: steps a second of {threads} threads / 1, median", f"{faster:.2f}", ""),
        ]
    return rows


def accuracy_of_codistillation(seeds: int = _SEEDS) -> list[Row]:
    """Compare codistilled models of the digits with one, and with two independent ones."""
    one, independent, codistilled = out_of_step.codistillation(range(seeds))
    name = f"digits, {seeds} seeds, same steps: accuracy"
    rows = [Row(f"{name} of one model that sees all, %", f"{100 * statistics.fmean(one):.2f}", "")]
    ways = ("mean of the two", "their averaged predictions")
    for number, way in enumerate(ways):
        apart = independent[number], codistilled[number]
        rows += [
            Row(
                f"{name} of two independent models on halves - one, {way}, %",
                _apart(out_of_step.compared(apart[0], one)),
                "",
            ),
            Row(
                f"{name} of two codistilled models on halves - one, {way}, %",
                _apart(out_of_step.compared(apart[1], one)),
                "",
            ),
            Row(
                f"{name} of two codistilled models - two independent ones, {way}, %",
                _apart(out_of_step.compared(apart[1], apart[0])),
                "",
            ),
        ]
    return rows


def weights_of_l_bfgs(splits: int = _SEEDS) -> list[Row]:
    """Compare the weights that two workers find by L-BFGS with those of one worker."""
    name = f"L-BFGS on the digits, {splits} splits: greatest difference of a weight"
    return [Row(f"{name}, 2 workers - 1", f"{lbfgs.difference(range(splits)):.1e}", "<= 1e-6")]


def _apart(found: out_of_step.Accuracy) -> str:
    return f"{100 * found.difference:+.2f} ± {100 * found.error:.2f}"


ROWS: list[Callable[[], list[Row]]] = [
    rings_against_tensorflow,
    overhead_of_fit,
    speed_of_fit,
    share_of_convolutions,
    planned_and_measured_speed,
    starts_of_trainings,
    accuracy_of_downpour,
    accuracy_of_codistillation,
    weights_of_l_bfgs,
    kills_of_workers,
    large_batches,
    batch_size_found,
    half_precision,
    hogwild,
]


def main() -> None:
    """Print the table, or another one that an option chooses."""
    parser = argparse.ArgumentParser()
    help_text = "compare the libraries that could connect the workers, instead"
    parser.add_argument("--candidates", action="store_true", help=help_text)
    help_text = "measure all-reduces on an emulated network alone; as root"
    parser.add_argument("--rings", action="store_true", help=help_text)
    options = parser.parse_args()
    if options.candidates:
        print("\n".join(rings.candidates_table()))
        return
    # The namespaces of the emulated network are removed then, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))
    if not options.rings:
        print("| measure | value | bar |\n| --- | --- | --- |")
        for rows in ROWS:
            for row in rows():
                print(f"| {row.measure} | {row.value} | {row.bar} |", flush=True)
    for line in emulated_rings.report():
        print(line, flush=True)


if __name__ == "__main__":
    main()
