"""Repairs the journal of a run: keeps the records before the damage, and sets the rest aside."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from experiment.run_files.journal import JournalDamaged, read_journal, segment_name, segment_numbers
from spark_jobs.run_folder.paths import RESULT, RunPaths
from spark_jobs.storage.files import WritableFiles
from spark_jobs.storage.locations import Location


@dataclass(frozen=True, slots=True)
class Repair:
    """The repair of a damaged journal.

    Attributes:
        damage: The damage.
        records: Number of records before it.
        aside: Places of the original segments.
    """

    damage: JournalDamaged
    records: int
    aside: list[str]


def is_damaged(paths: RunPaths) -> bool:
    """Return whether the journal of a run is damaged."""
    try:
        for _ in read_journal(paths.journal, paths.shown()):
            pass
    except JournalDamaged:
        return True
    return False


def repair_journal(paths: RunPaths, files: WritableFiles) -> Repair | None:
    """Cut the journal of a run before its first damage; return None if it has none.

    The run's summary is removed: it counts trials that are cut.

    The segments with the damage and after it are kept as `000001.jsonl.damaged`. The cut comes
    last, so an interrupted repair leaves a journal with the same damage.

    Args:
        paths: The paths of the run, or of its copy on this host. No other process may write to it.
        files: The run's store.

    Raises:
        OSError: The journal cannot be written to.
    """
    records = 0
    try:
        for _ in read_journal(paths.journal, paths.shown()):
            records += 1
    except JournalDamaged as damage:
        files.remove(Location.parse(paths.shown()).below(RESULT))
        return Repair(damage, records, _cut(paths, files, damage))
    return None


def _cut(paths: RunPaths, files: WritableFiles, damage: JournalDamaged) -> list[str]:
    """Cut a journal before its damage; return the places of the original segments."""
    journal, aside = Location.parse(paths.shown(paths.journal)), []
    taken = {status.location.name for status in files.listdir(journal)}
    for number in reversed(segment_numbers(paths.journal)):  # so that there is never a gap
        if number < damage.segment:
            continue
        name = segment_name(number)
        old, new = journal.below(name), journal.below(_free_name(name, taken))
        if number == damage.segment and damage.whole:
            files.write(new, paths.journal / name)
            files.write(old, paths.journal / name, damage.whole)
        else:
            files.rename(old, new)
        aside.append(str(new))
    return aside[::-1]


def _free_name(name: str, taken: set[str]) -> str:
    """Return a free name for a damaged segment."""
    names = (f"{name}.damaged" + (f"-{n}" if n > 1 else "") for n in itertools.count(1))
    return next(free for free in names if free not in taken)
