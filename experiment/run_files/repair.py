"""Repairing the journal of a run: what lies before the damage is kept, the rest is set aside."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from experiment.run_files.journal import JournalDamaged, read_journal, segment_name, segment_numbers
from spark_jobs.run_folder.paths import RunPaths
from spark_jobs.storage.files import WritableFiles
from spark_jobs.storage.locations import Location


@dataclass(frozen=True, slots=True)
class Repair:
    """What was done to a damaged journal.

    Attributes:
        damage: What was wrong.
        records: How many there are before it.
        aside: Where the segments are as they were.
    """

    damage: JournalDamaged
    records: int
    aside: list[str]


def is_damaged(paths: RunPaths) -> bool:
    """Is the journal of a run not what was written?"""
    try:
        for _ in read_journal(paths.journal, paths.shown()):
            pass
    except JournalDamaged:
        return True
    return False


def repair_journal(paths: RunPaths, files: WritableFiles) -> Repair | None:
    """Cut the journal of a run before its first damage; None where there is none.

    The segments with the damage and after it stay beside it as `000001.jsonl.damaged`. The cut
    comes last: one that is interrupted leaves a journal with the same damage.

    Args:
        paths: Of the run, or of its copy on this host. Nobody else writes to the run.
        files: Of the place where the run is kept.

    Raises:
        OSError: It cannot be written to.
    """
    records = 0
    try:
        for _ in read_journal(paths.journal, paths.shown()):
            records += 1
    except JournalDamaged as damage:
        return Repair(damage, records, _cut(paths, files, damage))
    return None


def _cut(paths: RunPaths, files: WritableFiles, damage: JournalDamaged) -> list[str]:
    """Cut a journal before its damage; return where the segments are as they were."""
    journal, aside = Location.parse(paths.shown(paths.journal)), []
    taken = {status.location.name for status in files.listdir(journal)}
    for number in reversed(segment_numbers(paths.journal)):  # at no time is one missing inside
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
    """Return the name under which a segment is set aside."""
    names = (f"{name}.damaged" + (f"-{n}" if n > 1 else "") for n in itertools.count(1))
    return next(free for free in names if free not in taken)
