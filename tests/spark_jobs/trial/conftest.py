"""Trials of this process."""

import pytest

from spark_jobs.trial.context import TrialContext, entered
from spark_jobs.trial.pipe.link import DirectLink


@pytest.fixture
def trial(tmp_path):
    with entered(TrialContext(params={"x": 1, "shape": (2, 3)}, folder=tmp_path)):
        yield tmp_path


class Recorded:
    """A trial's context, and its messages from and to the supervisor."""

    def __init__(self, folder):
        self.reports = []
        self.link = DirectLink(self.reports.append)
        self.context = TrialContext(params={"x": 1}, folder=folder, link=self.link)


@pytest.fixture
def recorded(tmp_path):
    recorded = Recorded(tmp_path)
    with entered(recorded.context):
        yield recorded
