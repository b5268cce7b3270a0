"""What a process does before it forks trials leaves no trace but caches."""

from __future__ import annotations

import os
import random

import numpy as np

from spark_jobs.trial import context
from spark_jobs.zygote.preparing import rehearse


def test_a_rehearsal_leaves_nothing_open_and_no_trial():
    states = random.getstate(), np.random.get_state()
    before = set(os.listdir("/proc/self/fd"))
    try:
        rehearse()
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])
    assert set(os.listdir("/proc/self/fd")) <= before
    assert context.current() is None
