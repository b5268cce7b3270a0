"""The version of a run's folder, and the refusal of a newer one."""

from __future__ import annotations

from search.errors import InvalidArgument, shown

FORMAT = 1
"""Version of the folder's layout, of the manifest and of the journal's records."""

RUN = "the folder of a run"
"""What messages expect where a run is to be read."""


def check_format(found: int, run: str) -> None:
    """Make sure that this version can read what is of a format.

    Args:
        found: The format, of a manifest or of a segment of a journal.
        run: What users call the run's folder.

    Raises:
        InvalidArgument: It is newer than `FORMAT`.
    """
    if found > FORMAT:
        got = f"{shown(run, 300)}, of format {found}, while this version reads up to {FORMAT}"
        raise InvalidArgument("run", RUN, got, "upgrade spark-tf-experiment")
