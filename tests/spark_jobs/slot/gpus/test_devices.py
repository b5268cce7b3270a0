from spark_jobs.slot.gpus.devices import host_gpus, total_memory, trial_environment
from spark_jobs.trial.memory.gpu_share import GpuShare


def test_a_trial_sees_exactly_the_gpus_of_its_slot():
    environment = trial_environment(["1", "3"], spark_assigns_gpus=True, cpus=1)
    assert environment["CUDA_VISIBLE_DEVICES"] == "1,3"


def test_cuda_counts_gpus_as_discovery_scripts_do_by_default(monkeypatch):
    monkeypatch.delenv("CUDA_DEVICE_ORDER", raising=False)
    environment = trial_environment(["1"], spark_assigns_gpus=True, cpus=1)
    assert environment["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    assert "CUDA_DEVICE_ORDER" not in trial_environment([], spark_assigns_gpus=False, cpus=1)
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "FASTEST_FIRST")
    assert "CUDA_DEVICE_ORDER" not in trial_environment(["1"], spark_assigns_gpus=True, cpus=1)


def test_gpus_of_a_resource_profile_count_where_the_application_asks_for_none():
    environment = trial_environment(["2"], spark_assigns_gpus=False, cpus=1)
    assert environment["CUDA_VISIBLE_DEVICES"] == "2"


def test_a_slot_without_gpus_sees_none_if_spark_assigns_them():
    assert trial_environment([], spark_assigns_gpus=True, cpus=1)["CUDA_VISIBLE_DEVICES"] == ""


def test_the_variable_is_not_set_if_spark_assigns_no_gpus():
    environment = trial_environment([], spark_assigns_gpus=False, cpus=1)
    assert "CUDA_VISIBLE_DEVICES" not in environment
    assert environment["TF_FORCE_GPU_ALLOW_GROWTH"] == "true"


def test_a_share_of_a_gpu_is_in_the_environment():
    share = GpuShare(0.225)
    environment = trial_environment(["2"], spark_assigns_gpus=True, cpus=1, share=share)
    assert environment.items() >= share.environment().items()
    alone = trial_environment(["2"], spark_assigns_gpus=True, cpus=1)
    assert environment.keys() - alone.keys() == share.environment().keys()


def test_the_memory_of_a_gpu_is_nvmls(nvml):
    assert total_memory("1") == 16 << 30


def test_the_memory_of_a_gpu_that_nvml_does_not_know_is_unknown():
    assert total_memory("GPU-of-nobody") is None
    assert total_memory("999999") is None


def test_tensorflow_gets_the_threads_of_the_slot_by_default(monkeypatch):
    monkeypatch.delenv("TF_NUM_INTRAOP_THREADS", raising=False)
    monkeypatch.setenv("TF_NUM_INTEROP_THREADS", "7")
    environment = trial_environment([], spark_assigns_gpus=False, cpus=3)
    assert environment["TF_NUM_INTRAOP_THREADS"] == "3"
    assert "TF_NUM_INTEROP_THREADS" not in environment


def test_gpus_are_counted_by_the_drivers_folder_and_cuda_visible_devices(tmp_path, monkeypatch):
    for name in ("0000:01:00.0", "0000:02:00.0"):
        (tmp_path / name).mkdir()
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert host_gpus(tmp_path) == 2
    assert host_gpus(tmp_path / "missing") == 0
    for visible, count in (("", 0), ("-1", 0), ("1", 1), ("0,1,2", 2)):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        assert host_gpus(tmp_path) == count
