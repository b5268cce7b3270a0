"""The functions that Spark sends to executors.

They are pickled by value and import our packages themselves, so that an executor without them fails
with our message rather than an error of unpickling.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from spark_jobs.handover import Lent
from spark_jobs.slot.problems import PROBLEM, import_problem


class Shared(NamedTuple):
    """The import that slots share.

    Attributes:
        modules: The modules to import.
        guessed: More modules to import, unless their import raises.
        seconds: Seconds for which they stay imported without a zygote; 0 for no shared import.
    """

    modules: tuple[str, ...] = ()
    guessed: tuple[str, ...] = ()
    seconds: float = 0.0


def slot_function(
    job: int, lent: Lent, function: Lent, search_path: list[str], shared: Shared
) -> Callable[[Iterable[Any]], Any]:
    """Return the function that runs a slot, for `mapPartitions` or `mapInArrow`; it yields nothing.

    Args:
        job: The slot job's number, from 1.
        lent: The `SlotConfig`, as JSON.
        function: The train function, which is not in the config's program.
        search_path: Folders to import from, in addition to the executor's own.
        shared: The import to begin before everything else.
    """
    prepare = warm_up_function(search_path, shared)

    def slot(batches: Iterable[Any]) -> Iterator[Any]:
        yield from prepare(batches)
        from spark_jobs.slot.slot import run_slot

        run_slot(job, lent, function)

    return slot


def look_function(
    search_path: list[str], shared: Shared
) -> Callable[[Iterable[Any]], Iterator[int]]:
    """Return the function that yields one item where the executor keeps an import, else none.

    Args:
        search_path: Folders to import from, in addition to the worker's own.
        shared: The import.
    """
    modules, guessed, _ = shared

    def look(batches: Iterable[Any]) -> Iterator[int]:
        import contextlib
        import sys

        sys.path.extend(folder for folder in search_path if folder not in sys.path)
        with contextlib.suppress(ModuleNotFoundError):  # a search says what is missing
            from spark_jobs.zygote.shared_import import is_kept

            if is_kept(modules, guessed):
                yield 1

    return look


def warm_up_function(
    search_path: list[str], shared: Shared
) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """Return the function that prepares a worker for slots; it yields nothing.

    Args:
        search_path: Folders to import from, in addition to the worker's own.
        shared: The import to begin, which nobody waits for.
    """
    marker, why = PROBLEM, import_problem()
    modules, guessed, seconds = shared  # its class may be missing there

    def prepare(batches: Iterable[Any]) -> Iterator[Any]:
        import sys

        sys.path.extend(folder for folder in search_path if folder not in sys.path)
        try:
            from spark_jobs.zygote.shared_import import begin

            begin(modules, guessed, seconds)
            import spark_jobs.slot.slot  # noqa: F401  # meanwhile: it takes a while, too
        except ModuleNotFoundError as error:
            raise RuntimeError(f"{marker}Python {sys.executable}: {why(error)}") from None
        for _ in batches:
            pass
        yield from ()

    return prepare
