"""Findings that need no slot."""

from __future__ import annotations

from experiment.diagnosis.driver_findings import cannot_start
from spark_jobs.cluster.standalone_pages import FailingHost


def test_a_host_where_executors_end_at_once_is_red_and_names_a_log():
    found = cannot_start(FailingHost("node-7", 12, "http://node-7:8081/log"))
    assert (found.check, found.host, found.level) == ("slots", "node-7", "red")
    assert found.got == "no executor starts there: 12 have ended"
    assert found.advice == "see the log of the last one: http://node-7:8081/log"
