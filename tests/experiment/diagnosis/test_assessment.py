"""Findings from facts that a single machine cannot produce, or not within seconds."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from experiment.diagnosis.assessment import Expected, assess, size
from experiment.diagnosis.diagnosis import Finding, diagnosis_of
from spark_jobs.doctor.facts import (
    Data,
    DriverCall,
    Found,
    Gpus,
    Met,
    Room,
    RoundTrip,
    Software,
    TensorFlow,
)

VERSIONS = {"pyspark": "4.0.1", "numpy": "2.1.3", "hdfs": ""}
SOFTWARE = Software(
    python="3.11.7", executable="/usr/bin/python3", versions=dict(VERSIONS), source="digest"
)
SOUND = Found(
    slot="1.0.0",
    host="node-1",
    executor="7",
    software=SOFTWARE,
    tensorflow=TensorFlow(version="2.18.0", cuda="12.5.1", gpus=1, seconds=3.0),
    driver=DriverCall(1000.0, 0.002),
    folder=RoundTrip(0.01, True),
    data=Data(files=3, bytes=4000, read=1000, seconds=0.1),
    space=Room(
        memory=8 << 30,
        scratch=50 << 30,
        cache=20 << 30,
        scratch_folder="/scratch",
        cache_folder="/cache",
    ),
    gpus=Gpus(("0",), 1),
)
EXPECTED = Expected(
    software=SOFTWARE,
    heard={"1.0.0": 1000.0},
    target="[::1]:4000",
    data=SOUND.data,
    logdir="hdfs://a/runs",
    assigns_gpus=True,
    executor_gpus=1,
    gpu_share=1,
    slot_memory=0.8e9,
)


def judged(*found, check, **expected):
    """Return the worst finding of a check."""
    findings = assess(found or (SOUND,), replace(EXPECTED, **expected))
    return next(f for f in diagnosis_of(findings).findings if f.check == check)


def sick(**facts):
    return msgspec.structs.replace(SOUND, **facts)


def test_facts_without_problems_are_ok():
    findings = list(assess((SOUND,), EXPECTED))
    assert {f.level for f in findings} == {"ok"}
    assert len(findings) == 9


def test_slots_that_reach_each_other_or_not_are_told_with_the_ports_to_open():
    ports = 20_000, 20_999
    met = judged(sick(workers=Met(others=3, seconds=0.02)), check="workers", worker_ports=ports)
    assert (met.level, met.got) == ("ok", "3 other slots reached at ports 20000 to 20999 in 20 ms")
    why = "worker 0 on host a does not reach worker 1 at b:20001 within 15 s (timed out)"
    slot = sick(trouble={"workers": f"{why}; open the workers' ports"})
    apart = judged(slot, check="workers", worker_ports=ports)
    assert (apart.level, apart.host, apart.got) == ("warning", "node-1", why)
    assert apart.advice.startswith("open ports 20000 to 20999 between executors, or set spark.")
    checks = {finding.check for finding in assess((slot,), EXPECTED)}
    assert "workers" not in checks, "in local mode no network is between slots"


def test_modules_that_an_executor_keeps_imported_are_named():
    slots = sick(kept=(("keras", "tensorflow"),)), sick(kept=(("keras", "tensorflow"), ("numpy",)))
    finding = judged(*slots, check="shared import")
    assert (finding.level, finding.host) == ("ok", SOUND.host)
    assert finding.got == ("ready for the next search, or being imported: keras, tensorflow; numpy")


def test_an_import_of_this_package_alone_is_named():
    (found,) = [
        one for one in assess((sick(kept=((),)),), EXPECTED) if one.check == "shared import"
    ]
    assert found.got.endswith(": this package")


def test_what_is_kept_imported_is_no_problem_if_it_is_unknown():
    findings = list(assess((sick(trouble={"kept": "no answer within 60 s"}),), EXPECTED))
    assert {finding.level for finding in findings} == {"ok"}


def with_packages(**versions):
    """Return the driver's software with further packages."""
    return msgspec.structs.replace(SOFTWARE, versions=VERSIONS | versions)


def software(python="3.11.7", source="digest", **versions):
    return sick(
        software=Software(
            python=python,
            executable="/usr/bin/python3",
            versions=VERSIONS | versions,
            source=source,
        )
    )


@pytest.mark.parametrize(
    ("slot", "level", "got"),
    [
        (software(numpy=None), "red", "no numpy"),
        (software(numpy=None, hdfs=None), "red", "no numpy, hdfs"),
        (software(source="?"), "red", "another version of this framework than the driver's"),
        (software(pyspark="4.1.0"), "red", "pyspark 4.1.0 (driver: 4.0.1)"),
        (software(pyspark="4.0.0"), "warning", "pyspark 4.0.0 (driver: 4.0.1)"),
        (software(numpy="1.26.0"), "red", "numpy 1.26.0 (driver: 2.1.3)"),
        (software(numpy="2.0.0"), "warning", "numpy 2.0.0 (driver: 2.1.3)"),
        (software(hdfs="2.7.3"), "ok", "Python 3.11.7, 3 packages as on the driver"),
        (software(python="3.11.2"), "warning", "Python 3.11.2 (driver: 3.11.7)"),
    ],
)
def test_software(slot, level, got):
    finding = judged(slot, check="software")
    assert (finding.level, finding.got) == (level, got)
    assert ("/usr/bin/python3" in finding.advice or "--py-files" in finding.advice) == (
        level != "ok"
    )


def test_a_tensorflow_that_does_not_see_its_gpus():
    blind = TensorFlow(version="2.18.0", cuda="", gpus=0, seconds=3.0)
    finding = judged(sick(tensorflow=blind), check="tensorflow")
    got = "2.18.0, built without CUDA, imported in 3.0 s, sees 0 of its slot's 1 GPU"
    assert (finding.level, finding.got) == ("red", got)
    assert "tensorflow[and-cuda]" in finding.advice


@pytest.mark.parametrize(
    ("heard", "seconds", "level"),
    [(1000.0, 0.1, "ok"), (1000.0, 60.0, "ok"), (998.0, 0.1, "warning"), (1006.0, 0.1, "red")],
)
def test_a_clock_is_judged_by_what_is_certain(heard, seconds, level):
    slot = sick(driver=DriverCall(1000.0 - seconds / 2, seconds))
    assert judged(slot, check="clock", heard={"1.0.0": heard}).level == level


def test_a_folder_that_is_not_the_drivers():
    finding = judged(sick(folder=RoundTrip(0.01, False)), check="logdir")
    assert (finding.level, finding.got) == ("red", "does not see hdfs://a/runs of the driver")


@pytest.mark.parametrize(
    ("data", "level", "wording"),
    [
        (Data(files=2, bytes=4000, read=1000, seconds=0.1), "red", "2 files, 4 kB"),
        (Data(files=3, bytes=5000, read=1000, seconds=0.1), "red", "3 files, 5 kB"),
        (Data(files=3, bytes=4000, read=1000, seconds=0.1), "ok", "3 files, 4 kB"),
    ],
)
def test_data_that_is_not_the_drivers(data, level, wording):
    finding = judged(sick(data=data), check="data")
    assert finding.level == level
    assert finding.got.startswith(wording)


@pytest.mark.parametrize(("copied", "level"), [(True, "warning"), (False, "ok")])
def test_data_larger_than_the_room_for_copies(copied, level):
    data = Data(files=3, bytes=30 << 30, read=1000, seconds=0.1, copied=copied)
    assert judged(sick(data=data), check="data", data=data).level == level


@pytest.mark.parametrize(("free", "level"), [(1 << 29, "red"), (2 << 30, "warning")])
def test_a_full_disk(free, level):
    space = Room(
        memory=8 << 30,
        scratch=free,
        cache=20 << 30,
        scratch_folder="/scratch",
        cache_folder="/cache",
    )
    finding = judged(sick(space=space), check="space")
    assert (finding.level, finding.got) == (level, f"{size(free)} free in /scratch")
    assert "spark.local.dir" in finding.advice


def test_memory_for_all_slots_of_a_host():
    slots = [sick(slot=f"{number}.0.0") for number in range(11)]
    assert judged(*slots[:10], check="memory").level == "ok"
    finding = judged(*slots, check="memory")
    assert (finding.level, finding.got) == ("warning", "8.59 GB free for 11 slots")


def test_an_executor_that_dies_with_a_trial_that_runs_out_of_memory():
    assert "out of memory" not in {finding.check for finding in assess((SOUND,), EXPECTED)}
    space = msgspec.structs.replace(SOUND.space, kills_all=True)
    finding = judged(sick(space=space), check="out of memory")
    assert (finding.level, finding.host) == ("warning", SOUND.host)
    assert finding.got == (
        "the kernel kills all processes of an executor's container (memory.oom.group is 1)"
    )
    assert "singleProcessOOMKill" in finding.advice


@pytest.mark.parametrize(
    ("gpus", "share", "level", "got"),
    [
        ([("0",), ("1",)], 1, "ok", "2 GPUs assigned, each to a slot of its own"),
        ([("0",), ("0",)], 1, "red", "GPU 0 in 2 slots at once"),
        ([("0",), ("0",)], 2, "ok", "1 GPU assigned, each to at most 2 slots"),
        ([("0",), ("0",), ("0",)], 2, "red", "GPU 0 in 3 slots at once"),
        ([("0",), ("9",), ("1", "7")], 1, "warning", "4 GPUs assigned by Spark, 2 on the host"),
        ([()], 1, "warning", "2 GPUs, which Spark does not assign: all trials see all of them"),
    ],
)
def test_gpus_of_a_host(gpus, share, level, got):
    slots = [sick(gpus=Gpus(addresses, 2)) for addresses in gpus]
    known = {"assigns_gpus": any(gpus), "executor_gpus": 4 if any(gpus) else 0}
    finding = judged(*slots, check="gpus", gpu_share=share, **known)
    assert (finding.level, finding.got) == (level, got)
    assert bool(finding.advice) == (level != "ok")


def test_the_advice_for_a_gpu_in_two_slots_names_what_spark_gets_the_addresses_from():
    finding = judged(sick(), sick(), check="gpus")
    assert "discovery script" in finding.advice
    assert "CUDA_VISIBLE_DEVICES" not in finding.advice  # Spark's script ignores it


@pytest.mark.parametrize("present", [0, 4])
def test_gpus_that_spark_knows_and_no_slot_requests(present):
    slot = sick(gpus=Gpus((), present))
    finding = judged(slot, check="gpus", assigns_gpus=False, executor_gpus=4)
    got = "4 GPUs per executor, but slots request none: all trials see all of them"
    assert (finding.level, finding.got) == ("warning", got)
    assert finding.advice.startswith("set gpus_per_trial= or trials_per_gpu= of the search")
    assert "spark.executor.resource" not in finding.advice
    hidden = judged(slot, check="gpus", assigns_gpus=True, executor_gpus=4)  # gpus_per_trial=0
    assert hidden.level == "ok"


@pytest.mark.parametrize(
    ("there", "wording"), [(None, "no pynvml"), ("11.5", "pynvml 11.5 (driver: 12.560)")]
)
def test_a_missing_gpu_monitor_is_only_a_warning(there, wording):
    driver = with_packages(pynvml="12.560")
    finding = judged(software(pynvml=there), check="software", software=driver)
    assert (finding.level, finding.got) == ("warning", wording)
    for worse in ({"numpy": None}, {"pyspark": "4.1.0"}):
        slot = software(pynvml=there, **worse)
        assert judged(slot, check="software", software=driver).level == "red"


def test_a_driver_that_cannot_be_reached_costs_time_where_the_folder_is_shared():
    wording = "the driver at [::1], port 4000, cannot be reached: timed out"
    trouble = {"driver": "timed out"}
    finding = judged(sick(driver=None, trouble=trouble, folder=None), check="driver")
    assert (finding.level, finding.got) == ("red", wording)
    finding = judged(sick(driver=None, trouble=trouble), check="driver")
    assert finding.level == "warning"
    assert finding.got.startswith(f"{wording}; messages of its trials go through the run's folder")


@pytest.mark.parametrize(
    ("fact", "check", "advice"),
    [
        ("folder", "logdir", "a folder that every host can write to"),
        ("function", "train", "make its modules importable"),
        ("data", "data", "check that every host reaches it"),
        ("space", "space", "spark.experiment.cache.folder"),
    ],
)
def test_a_fact_that_a_slot_could_not_find_out_is_red_with_the_reason(fact, check, advice):
    slot = sick(trouble={fact: "Permission denied"}, **({} if fact == "function" else {fact: None}))
    (found,) = [one for one in assess((slot,), EXPECTED) if one.check == check]
    assert (found.level, found.host, found.got) == ("red", "node-1", "Permission denied")
    assert advice in found.advice


def test_a_slot_that_could_not_find_out_its_software_is_not_compared():
    assert judged(check="software").level == "ok"
    checks = {finding.check for finding in assess((sick(software=None),), EXPECTED)}
    assert "software" not in checks
    assert "tensorflow" in checks


def test_each_problem_of_the_driver_is_shown_but_one_of_executors_on_a_host():
    found = [
        Finding(check="settings", host=host, level=level, got=got)
        for host in ("driver", "node-1")
        for level, got in [("ok", "fine"), ("warning", "odd"), ("red", "a"), ("red", "b")]
    ]
    shown = [(finding.host, finding.got) for finding in diagnosis_of([*found, *found]).findings]
    assert shown == [("driver", "a"), ("driver", "b"), ("node-1", "a"), ("driver", "odd")]


@pytest.mark.parametrize(
    ("amount", "text"), [(999, "999 bytes"), (999_400, "999 kB"), (999_700_000, "1 GB")]
)
def test_sizes_have_three_digits(amount, text):
    assert size(amount) == text


def test_many_hosts_share_a_row_and_the_worst_of_each_counts():
    findings = [
        Finding(check="clock", host=f"node-{number % 5}", level="ok", got="fine")
        for number in range(50)
    ]
    findings += [
        Finding(
            check="clock",
            host="node-3",
            level="red",
            got="late",
            expected="in time",
            advice="run chrony\x1b[2J",
        )
    ]
    diagnosis = diagnosis_of(findings)
    assert len(diagnosis.findings) == 5
    assert not diagnosis.ok
    hosts = "4 hosts: node-0, node-1, node-2, ..."
    assert str(diagnosis).splitlines() == [
        "1 red",
        f"red  clock  {'node-3':{len(hosts)}}  late; expected: in time",
        "    -> run chrony?[2J",
        f"ok   clock  {hosts}  fine",
    ]
    assert "\x1b" not in str(diagnosis) + diagnosis._repr_html_()


def test_findings_are_ordered_by_host_whatever_the_order_of_answers():
    first, second = sick(slot="1.0.0"), sick(slot="1.1.0", host="node-2")
    heard = {"1.0.0": 1000.0, "1.1.0": 1000.0}
    table, mirrored = (
        str(diagnosis_of(assess(found, replace(EXPECTED, heard=heard))))
        for found in ((first, second), (second, first))
    )
    assert table.count("  node-1, node-2  ") == 9
    assert mirrored == table


def test_a_diagnosis_without_findings_is_no_error():
    assert str(diagnosis_of([])) == "all is well"


@pytest.mark.parametrize(
    ("amount", "wording"),
    [
        (0, "0 bytes"),
        (999, "999 bytes"),
        (1000, "1 kB"),
        (5 << 30, "5.37 GB"),
        (10**15, "1e+03 TB"),
    ],
)
def test_sizes(amount, wording):
    assert size(amount) == wording
