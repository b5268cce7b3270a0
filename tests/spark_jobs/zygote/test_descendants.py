"""The end of the processes that a trial leaves."""

from __future__ import annotations

import subprocess
from typing import Any

import psutil

from spark_jobs.zygote.descendants import kill_all


def test_a_process_of_another_user_is_left_and_all_others_are_ended():
    class OfRoot:
        def kill(self) -> None:
            raise psutil.AccessDenied

    class Gone:
        def kill(self) -> None:
            raise psutil.NoSuchProcess(1)

    odd: list[Any] = [OfRoot(), Gone()]
    with subprocess.Popen(["sleep", "1000"]) as process:
        kill_all([*odd, psutil.Process(process.pid)])
        assert process.wait(timeout=60) < 0
