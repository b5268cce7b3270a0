import pytest

from search.errors import InvalidArgument
from spark_jobs.cluster.task_needs import TaskNeeds, slot_needs

GPUS = {"spark.executor.resource.gpu.amount": "2"}
CLUSTER = "spark://host:7077"


@pytest.mark.parametrize(
    ("needs", "text"),
    [
        (TaskNeeds(1), "1 core"),
        (TaskNeeds(4), "4 cores"),
        (TaskNeeds(1, 0.25), "1 core and 0.25 GPU"),
        (TaskNeeds(2, 1), "2 cores and 1 GPU"),
        (TaskNeeds(1, 2), "1 core and 2 GPUs"),
    ],
)
def test_needs_in_words(needs, text):
    assert str(needs) == text


def test_needs_of_an_application_are_those_of_its_settings():
    assert TaskNeeds.of({}.get) == TaskNeeds(1, 0)
    settings = {"spark.task.cpus": "2", "spark.task.resource.gpu.amount": "0.25"}
    assert TaskNeeds.of(settings.get) == TaskNeeds(2, 0.25)


@pytest.mark.parametrize("trials", range(1, 65))
def test_as_many_trials_as_asked_for_fit_on_a_gpu(trials):
    needs = slot_needs(None, trials, GPUS.get, CLUSTER)
    assert (needs.tasks_per_gpu, needs.fit(1000, 2)) == (trials, 2 * trials if trials > 1 else 1000)


@pytest.mark.parametrize(
    ("needs", "cores", "gpus", "tasks"),
    [
        (TaskNeeds(1), 3, 0, 3),
        (TaskNeeds(2), 3, 4, 1),
        (TaskNeeds(1, 1), 4, 2, 2),
        (TaskNeeds(1, 2), 4, 3, 1),
        (TaskNeeds(1, 0.3), 9, 2, 6),  # an address has room for whole tasks only
        (TaskNeeds(2, 0.25), 4, 1, 2),
        (TaskNeeds(1, 1), 4, 0, 0),
    ],
)
def test_cores_and_gpus_limit_the_tasks_of_an_executor(needs, cores, gpus, tasks):
    assert needs.fit(cores, gpus) == tasks


def test_arguments_come_before_the_applications_setting_and_keep_its_cores():
    settings = GPUS | {"spark.task.resource.gpu.amount": "1", "spark.task.cpus": "2"}
    for master in (CLUSTER, "local-cluster[1,2,1024]", "yarn", "k8s://https://host"):
        assert slot_needs(None, 1, settings.get, master) == TaskNeeds(2, 1)
        assert slot_needs(0, 1, settings.get, master) == TaskNeeds(2, 0)
        assert slot_needs(2, 1, settings.get, master) == TaskNeeds(2, 2)
        assert slot_needs(1, 4, settings.get, master) == TaskNeeds(2, 0.25)


@pytest.mark.parametrize(
    ("asked", "settings", "master", "words"),
    [
        (
            (3, 1),
            GPUS,
            CLUSTER,
            "gpus_per_trial: expected at most 2, the GPUs of an executor "
            "(spark.executor.resource.gpu.amount), got 3",
        ),
        (
            (1, 1),
            {},
            CLUSTER,
            "gpus_per_trial: expected None or 0, since Spark knows of no GPUs of its executors, "
            "got 1; or set spark.executor.resource.gpu.amount and "
            "spark.executor.resource.gpu.discoveryScript",
        ),
        (
            (None, 4),
            {},
            CLUSTER,
            "trials_per_gpu: expected 1, since Spark knows of no GPUs of its executors, got 4; or "
            "set spark.executor.resource.gpu.amount and "
            "spark.executor.resource.gpu.discoveryScript",
        ),
    ],
)
def test_impossible_needs_are_refused_with_need_and_offer(asked, settings, master, words):
    with pytest.raises(InvalidArgument) as caught:
        slot_needs(*asked, settings.get, master)
    assert str(caught.value) == words


@pytest.mark.parametrize("master", ["local", "local[2]", "local[*]", "local[2,3]"])
@pytest.mark.parametrize(
    ("asked", "settings", "name", "got"),
    [
        ((1, 1), GPUS, "gpus_per_trial", "1"),
        ((None, 4), GPUS, "trials_per_gpu", "4"),
        ((None, 1), {"spark.task.resource.gpu.amount": "0.5"}, "spark.task.resource.gpu", "0.5"),
        ((0, 1), {"spark.task.resource.gpu.amount": "1"}, "spark.task.resource.gpu", "1"),
    ],
)
def test_gpus_in_local_mode_are_refused_with_a_hint(master, asked, settings, name, got):
    with pytest.raises(InvalidArgument) as caught:
        slot_needs(*asked, settings.get, master)
    message = str(caught.value)
    assert message.startswith(name)
    assert f" with the master {master}, got {got}; tasks that ask for GPUs wait for ever" in message
    assert slot_needs(0, 1, {}.get, master) == slot_needs(None, 1, {}.get, master) == TaskNeeds(1)
