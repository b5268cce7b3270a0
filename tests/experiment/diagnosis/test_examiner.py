"""What `experiment.doctor` examines."""

from types import SimpleNamespace

import pytest

from experiment.diagnosis.examiner import Examiner
from search.errors import InvalidArgument
from spark_jobs.storage.locations import Location
from spark_jobs.trial.context import DataSettings


def without_gpus(*asked):
    raise InvalidArgument("gpus_per_trial", "none, as no executor has GPUs", "1")


@pytest.mark.parametrize(
    ("data", "level", "reason"),
    [
        ("/no/such/data", "warning", "[Errno 2] No such file or directory: '/no/such/data'"),
        ("hdfs:///data", "red", "fs.defaultFS is nothing"),  # slots get the same settings
    ],
)
def test_data_that_the_driver_cannot_read_may_still_be_on_executors(tmp_path, data, level, reason):
    session = SimpleNamespace(
        hide_console_progress=lambda: None,
        check_settings=lambda: None,
        exposure=None,
        asking=without_gpus,  # so no slot is examined
        data_settings=DataSettings,
    )
    examined = Examiner(session=session, timeout=60.0).examine(None, Location.parse(data), tmp_path)
    (finding,) = [f for f in examined.findings if f.check == "data"]
    assert (finding.host, finding.level) == ("driver", level)
    assert reason in finding.got
