"""The format version of a run folder, and the refusal of newer ones."""

from __future__ import annotations

from search.errors import InvalidArgument, shown

FORMAT = 1
"""Version of the run folder's layout, the manifest, the journal's records and the summary."""

RUN = "the folder of a run"
"""The expected value in messages about a run that is read."""


def check_format(found: int, run: str) -> None:
    """Check that this version can read a format.

    Args:
        found: The format of a manifest, a summary or a segment of a journal.
        run: The run folder's name for users.

    Raises:
        InvalidArgument: The format is newer than `FORMAT`.
    """
    if found > FORMAT:
        got = f"{shown(run, 300)}, of format {found}, while this version reads up to {FORMAT}"
        raise InvalidArgument("run", RUN, got, "upgrade spark-tf-experiment")
