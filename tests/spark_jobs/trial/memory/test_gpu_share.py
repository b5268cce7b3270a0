import sys
from types import ModuleType, SimpleNamespace

import cloudpickle
import pytest

from search.trial import Trial
from spark_jobs.messages import Attempt
from spark_jobs.slot.gpus.devices import gpu_share
from spark_jobs.trial.context import current
from spark_jobs.trial.memory.gpu_share import GpuShare, limited
from spark_jobs.trial.trial_process import Program, evaluate

GIB = 1 << 30


def module(name, **content):
    made = ModuleType(name)
    vars(made).update(content)
    return made


def torch(calls, *, available=True):
    cuda = SimpleNamespace(
        is_available=lambda: available, set_per_process_memory_fraction=calls.append
    )
    return module("torch", cuda=cuda)


def tensorflow(calls, gpus=("GPU:0",), error=None):
    def grow(device, enable):
        if calls:
            raise ValueError("Cannot set memory growth on device when virtual devices configured")

    def configure(gpu, devices):
        if error is not None:
            raise error
        calls.append((gpu, devices))

    config = SimpleNamespace(
        list_physical_devices=lambda kind: list(gpus) if kind == "GPU" else ["CPU:0"],
        LogicalDeviceConfiguration=lambda memory_limit: memory_limit,
        set_logical_device_configuration=configure,
        experimental=SimpleNamespace(set_memory_growth=grow),
    )
    return module("tensorflow", config=config)


@pytest.fixture(autouse=True)
def no_limits_of_the_user(monkeypatch):
    for name in ("XLA_PYTHON_CLIENT_MEM_FRACTION", "XLA_CLIENT_MEM_FRACTION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("CUPY_GPU_MEMORY_LIMIT", raising=False)


def test_the_shares_of_all_trials_leave_room_for_cudas_own_memory():
    for trials in range(2, 65):
        assert 0.85 < trials * GpuShare.of(trials, None).fraction < 0.901


def test_a_slot_that_shares_no_gpu_has_no_limit():
    assert gpu_share(["0"], 1) is None
    assert gpu_share([], 4) is None


def test_a_gpu_that_is_not_there_has_no_known_memory():
    assert gpu_share(["GPU-of-nobody"], 4) == GpuShare(0.225, None)


def test_jax_and_cupy_are_limited_by_variables_of_their_own(monkeypatch):
    share = GpuShare(0.225)
    assert share.environment() == {
        "XLA_PYTHON_CLIENT_MEM_FRACTION": "0.2250",
        "CUPY_GPU_MEMORY_LIMIT": "22.50%",
    }
    monkeypatch.setenv("XLA_CLIENT_MEM_FRACTION", "0.1")  # JAX refuses both of them together
    assert share.environment() == {"CUPY_GPU_MEMORY_LIMIT": "22.50%"}


def test_pytorch_is_limited_where_it_is_there_and_where_it_comes_later(monkeypatch, tmp_path):
    calls = []
    monkeypatch.setitem(sys.modules, "torch", torch(calls))
    with limited(GpuShare(0.225)):
        assert calls == [0.225]
    monkeypatch.delitem(sys.modules, "torch")
    (tmp_path / "torch.py").write_text(
        "from types import SimpleNamespace\n"
        "limits = []\n"
        "cuda = SimpleNamespace(is_available=lambda: True,\n"
        "    set_per_process_memory_fraction=limits.append)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with limited(GpuShare(0.45)):
        import torch as imported
    monkeypatch.delitem(sys.modules, "torch")
    assert imported.limits == [0.45]


def test_pytorch_without_cuda_is_not_limited(monkeypatch):
    calls = []
    monkeypatch.setitem(sys.modules, "torch", torch(calls, available=False))
    with limited(GpuShare(0.225)):
        pass
    assert calls == []


def test_tensorflow_is_limited_in_mebibytes_where_the_memory_is_known(monkeypatch):
    calls = []
    monkeypatch.setitem(sys.modules, "tensorflow", tensorflow(calls))
    with limited(GpuShare(0.225)):
        assert calls == []
    with limited(GpuShare(0.225, 80 * GIB)):
        assert calls == [("GPU:0", [18432])]


def test_a_train_function_may_set_the_memory_growth_of_a_gpu_with_a_limit(monkeypatch):
    imported = tensorflow([])
    monkeypatch.setitem(sys.modules, "tensorflow", imported)
    with limited(GpuShare(0.225, 80 * GIB)):
        for gpu in imported.config.list_physical_devices("GPU"):
            imported.config.experimental.set_memory_growth(gpu, True)


def test_without_a_share_no_framework_is_touched(monkeypatch):
    calls = []
    monkeypatch.setitem(sys.modules, "torch", torch(calls))
    monkeypatch.setitem(sys.modules, "tensorflow", tensorflow(calls))
    with limited(None):
        assert calls == []


def test_a_trial_knows_its_share_to_pass_it_on_to_its_processes(tmp_path):
    function = cloudpickle.dumps(lambda: current().gpu_share.fraction)
    program = Program(function=function, key=None, direction="max", gpu_share=GpuShare(0.225))
    assert evaluate(program, Attempt(Trial(0, {})), tmp_path).value == 0.225


def test_a_limit_that_cannot_be_set_is_logged_and_fails_no_trial(monkeypatch, capsys):
    started = RuntimeError("Virtual devices cannot be modified after being initialized")
    monkeypatch.setitem(sys.modules, "tensorflow", tensorflow([], error=started))
    with limited(GpuShare(0.225, 80 * GIB)):
        pass
    assert capsys.readouterr().err == f"no limit to tensorflow's GPU memory: {started}\n"
