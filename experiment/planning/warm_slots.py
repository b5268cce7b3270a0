"""The number of slots that would find their modules imported."""

from __future__ import annotations

import secrets

from experiment.setup.preparation import Prepared
from spark_jobs.slot.closure import look_function

_LIMIT = 3.0  # seconds, of which a task needs less than one unless it waits for other jobs
_MOST_TASKS = 1_000  # more would only make the job longer


def warm_slots(prepared: Prepared, slots: int | None) -> int | None:
    """Count the slots whose executors keep the modules of a search imported, or import them.

    A short job looks for them, unless there can be none: what executors keep was imported by
    earlier jobs of their application.

    Args:
        prepared: The search.
        slots: The number of its slots on the present executors; None if unknown.

    Returns:
        The number; None if it is unknown or there is nothing to import.
    """
    session = prepared.session
    if slots is None or not prepared.preload.modules:
        return None
    if not slots or not prepared.keep_warm or not session.has_run_jobs:
        return 0
    look = look_function(session.search_path(), prepared.shared_import)
    tasks = min(slots, _MOST_TASKS)
    with session.job(look, tasks, f"plan-{secrets.token_hex(8)}") as job:
        job.start()
        job.wait(_LIMIT)
    found: int | None = job.result
    return None if found is None else found * slots // tasks
