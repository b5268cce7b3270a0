"""Detection of out-of-memory failures; test_runners.py has trials that really run out."""

from __future__ import annotations

import errno
import math
import os
import resource
import sys
from types import SimpleNamespace

import psutil
import pytest

from spark_jobs.trial.memory import control_groups, out_of_memory
from spark_jobs.warm.keeper import free_memory

EVENTS = """\
low 0
high 12
max 340
oom 3
oom_kill 2
oom_group_kill 1
"""
OF_VERSION_1 = "oom_kill_disable 0\nunder_oom 1\noom_kill 5\n"


def raised(module, name, message, base=RuntimeError):
    """Return an exception of a class with this name, as of a framework not installed here."""
    return type(name, (base,), {"__module__": module})(message)


OP = "{{function_node __wrapped__Mul_device_/job:localhost/replica:0/task:0/device:GPU:0}}"
TENSOR = "OOM when allocating tensor with shape[9] on /job:localhost/replica:0/task:0/device:"
TF = "tensorflow.python.framework.errors_impl"
TRYING = "Out of memory while trying to allocate 16.00TiB."
JAX = "RESOURCE_EXHAUSTED: Out of memory allocating 70368744177664 bytes."
TORCH = "CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has 15.9 GiB of which 1 GiB is free"
ON_CPU = "[enforce fail at alloc_cpu.cpp:115] err == 0. DefaultCPUAllocator: can't allocate memory"


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (raised("torch", "OutOfMemoryError", TORCH), "gpu memory"),
        (raised("torch.cuda", "OutOfMemoryError", TORCH), "gpu memory"),
        (raised("mine", "Mine", "", type(raised("torch", "OutOfMemoryError", ""))), "gpu memory"),
        (raised("cupy.cuda.memory", "OutOfMemoryError", "", MemoryError), "gpu memory"),
        (RuntimeError("CUDA error: out of memory"), "gpu memory"),
        (raised(TF, "ResourceExhaustedError", f"{TENSOR}GPU:0 by GPU_0_bfc"), "gpu memory"),
        (raised(TF, "ResourceExhaustedError", f"{OP} failed to allocate memory"), "gpu memory"),
        (raised(TF, "InternalError", "initialization on GPU:0: out of memory"), "gpu memory"),
        (raised("jax.errors", "JaxRuntimeError", f"{JAX} CUDA_ERROR"), "gpu memory"),
        (raised(TF, "ResourceExhaustedError", f"{TENSOR}CPU:0 by mklcpu"), "memory"),
        (raised(TF, "ResourceExhaustedError", f"{TENSOR}CPU:0 by gpu_host_bfc"), "memory"),
        (MemoryError(), "memory"),
        (raised("numpy", "_ArrayMemoryError", "Unable to allocate 1 PiB", MemoryError), "memory"),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), "memory"),
        (RuntimeError(ON_CPU), "memory"),
        (OSError(errno.ENOSPC, "No space left on device"), None),
        (raised(TF, "ResourceExhaustedError", "/dev/full; No space left on device"), None),
        (raised(TF, "InternalError", "GPU:0 has fallen off the bus"), None),
        (raised("jax.errors", "JaxRuntimeError", "INTERNAL: a bug"), None),
        (raised("mine", "OutOfMemoryError", "GPU out of memory"), None),
        (RuntimeError("out of memory on the GPU"), None),
        (ValueError("OOM"), None),
    ],
    ids=str,
)
def test_exceptions_are_known_by_their_names_and_words(error, kind):
    assert out_of_memory.kind_of(error) == kind


def test_a_memory_error_that_cpython_has_lost_is_restored():
    found = out_of_memory.restored(SystemError("error return without exception set"))
    assert isinstance(found, MemoryError)


@pytest.mark.parametrize(
    "error", [SystemError("<built-in> returned NULL without setting an exception"), ValueError("x")]
)
def test_other_errors_stay_as_they_are(error):
    assert out_of_memory.restored(error) is error


@pytest.mark.parametrize(("backend", "kind"), [("gpu", "gpu memory"), ("cpu", "memory")])
@pytest.mark.parametrize(("module", "name"), [("jax.errors", "Jax"), ("jaxlib.xla_ext", "Xla")])
def test_jax_is_asked_where_it_computes(monkeypatch, module, name, backend, kind):
    monkeypatch.setitem(sys.modules, "jax", SimpleNamespace(default_backend=lambda: backend))
    assert out_of_memory.kind_of(raised(module, f"{name}RuntimeError", JAX)) == kind


@pytest.mark.parametrize(("devices", "kind"), [(["/device:GPU:0"], "gpu memory"), ([], "memory")])
def test_tensorflow_is_asked_where_xla_does_not_say(monkeypatch, devices, kind):
    config = SimpleNamespace(list_logical_devices=lambda kind: devices)
    monkeypatch.setitem(sys.modules, "tensorflow", SimpleNamespace(config=config))
    assert out_of_memory.kind_of(raised(TF, "ResourceExhaustedError", TRYING)) == kind


def test_an_unknown_device_is_no_gpu(monkeypatch):
    monkeypatch.setitem(sys.modules, "jax", None)
    assert out_of_memory.kind_of(raised("jax.errors", "JaxRuntimeError", JAX)) == "memory"


@pytest.mark.parametrize(
    ("text", "kills"), [(EVENTS, 2), (OF_VERSION_1, 5), ("oom_kill_disable 0\n", 0), ("", 0)]
)
def test_the_kernels_count_of_kills_is_read(text, kills):
    assert out_of_memory.oom_kills_in(text) == kills


@pytest.mark.parametrize(
    ("code", "complaints", "kills", "memory_was_short"),
    [
        (-6, "terminate called after throwing an instance of 'std::bad_alloc'\n", 0, True),
        (-6, "x" * 10**6 + "\nmemory allocation of 4096 bytes failed\n", 0, True),
        (-6, "memory allocation of 4096 bytes failed\n" + "x" * 10**6, 0, False),
        (-6, "Fatal Python error: Aborted", 1, False),
        (-9, "", 1, True),
        (-9, "std::bad_alloc", 0, False),
        (-11, "std::bad_alloc", 1, False),
        (1, "std::bad_alloc", 1, False),
    ],
)
def test_the_end_of_a_process_in_words(tmp_path, code, complaints, kills, memory_was_short):
    path = tmp_path / "stderr.log"
    path.write_text(complaints)
    found = out_of_memory.ended_by_memory(code, path, kills=kills, limited=False)
    assert found is memory_was_short


def test_a_trial_may_have_removed_its_complaints(tmp_path):
    path = tmp_path / "stderr.log"
    assert not out_of_memory.ended_by_memory(-6, path, kills=0, limited=True)


def test_a_trial_may_have_made_a_pipe_of_its_complaints(tmp_path):
    path = tmp_path / "stderr.log"
    os.mkfifo(path)
    assert not out_of_memory.ended_by_memory(-6, path, kills=0, limited=True)


BY_CPP = """\
terminate called after throwing an instance of 'std::system_error'
  what():  Resource temporarily unavailable
"""
BY_TENSORFLOW = """\
F0000 00:00:17 780 env.cc:84] Check failed: ret == 0 (11 vs. 0) Thread tf_Compute creation via \
pthread_create() failed.
*** Check failure stack trace: ***
    @     0x7f9092e6a5a6  tensorflow::DeviceFactory::AddDevices()
"""
BY_LLVM = "LLVM ERROR: pthread_create failed: Resource temporarily unavailable\n"
BY_OPENBLAS = (
    "OpenBLAS blas_thread_init: pthread_create failed for thread 1 of 2: Resource temporarily "
    "unavailable\n"
)
BY_PYTHON = "RuntimeError: can't start new thread\n"


@pytest.mark.parametrize("text", [BY_CPP, BY_TENSORFLOW, BY_LLVM, BY_OPENBLAS, BY_PYTHON])
def test_a_thread_that_does_not_start_is_out_of_memory_where_the_address_space_is_limited(text):
    """Without the limit, there are too many threads or processes."""
    assert out_of_memory.says_memory(text.encode(), limited=True)
    assert not out_of_memory.says_memory(text.encode(), limited=False)


@pytest.mark.parametrize(
    "text",
    [
        "after throwing an instance of 'std::system_error'\n  what():  Broken pipe",
        "BlockingIOError: [Errno 11] Resource temporarily unavailable",
        "",
    ],
)
def test_other_errors_of_the_system_are_not_out_of_memory(text):
    assert not out_of_memory.says_memory(text.encode(), limited=True)


@pytest.mark.parametrize(("limited", "kind"), [(True, "memory"), (False, None)])
def test_a_thread_of_python_that_does_not_start(monkeypatch, limited, kind):
    monkeypatch.setattr(out_of_memory, "is_limited", lambda: limited)
    assert out_of_memory.kind_of(RuntimeError("can't start new thread")) == kind
    assert out_of_memory.kind_of(RuntimeError("something else")) is None


@pytest.mark.parametrize(("name", "limited"), [("RLIMIT_AS", True), ("RLIMIT_DATA", True), ("", 0)])
def test_a_limit_of_address_space_is_one_of_the_process(monkeypatch, name, limited):
    def prlimit(pid, which):
        lowest = 1 << 30 if which == getattr(resource, name, None) else resource.RLIM_INFINITY
        return lowest, resource.RLIM_INFINITY

    monkeypatch.setattr(resource, "prlimit", prlimit)
    assert out_of_memory.is_limited(7) is bool(limited)


@pytest.fixture(params=["version 1", "version 2"])
def groups(request, tmp_path, monkeypatch):
    """The folder of the control groups' root, of a host or as a container sees its own."""
    monkeypatch.setattr(control_groups, "_ROOT", tmp_path)
    if request.param == "version 1":
        (tmp_path / "memory").mkdir()
        text = "5:cpu,cpuacct:/other\n4:memory:/spark/executor 1\n0::/\n"
    else:
        text = "0::/spark/executor 1\n"
    monkeypatch.setattr(control_groups, "_OWN", tmp_path / "own")
    (tmp_path / "own").write_text(text)
    return tmp_path / "memory" if request.param == "version 1" else tmp_path


def write(groups, folder, name, text):
    of_version_1 = groups.name == "memory"
    old = {
        "memory.max": "memory.limit_in_bytes",
        "memory.current": "memory.usage_in_bytes",
        "memory.events": "memory.oom_control",
    }
    (groups / folder).mkdir(parents=True, exist_ok=True)
    (groups / folder / (old.get(name, name) if of_version_1 else name)).write_text(text)


def test_the_tightest_limit_of_a_group_and_those_above_counts(groups):
    write(groups, "spark/executor 1", "memory.max", "max\n")
    write(groups, "spark", "memory.max", f"{1 << 20}\n")
    write(groups, "", "memory.max", f"{2 << 20}\n")
    assert out_of_memory.limits() == "the limit is 0.000977 GiB of memory (control group)"


def test_no_limit_is_the_memory_of_the_host(groups):
    write(groups, "spark/executor 1", "memory.max", "9223372036854771712\n")
    total = psutil.virtual_memory().total / (1 << 30)
    assert out_of_memory.limits() == f"the host has {total:.3g} GiB"


@pytest.mark.parametrize(("cache", "free"), [("", 0.05), ("inactive_file 20\n", 0.25)])
def test_the_free_memory_is_that_below_the_tightest_limit(groups, cache, free):
    """Pages of files that the kernel would drop are free."""
    write(groups, "spark/executor 1", "memory.max", "max\n")
    of_version_1 = "inactive_file 1\ntotal_" if cache and groups.name == "memory" else ""
    write(groups, "spark", "memory.max", "100\n")
    write(groups, "spark", "memory.current", "95\n")
    write(groups, "spark", "memory.stat", f"anon 70\n{of_version_1}{cache}active_file 3\n")
    assert control_groups.free_share() == pytest.approx(free)
    assert control_groups.free_bytes() == pytest.approx(100 * free)
    assert free_memory() <= free + 1e-9


def test_without_a_limit_all_memory_of_the_groups_is_free(groups, tmp_path):
    assert control_groups.free_share() == 1.0
    assert control_groups.free_bytes() == math.inf
    (tmp_path / "own").unlink()
    assert control_groups.free_share() == 1.0
    assert control_groups.free_bytes() == math.inf


@pytest.mark.parametrize("folder", ["spark/executor 1", "spark", ""])
def test_a_group_or_one_above_may_be_killed_as_a_whole(groups, folder):
    assert not control_groups.are_killed_together()
    write(groups, folder, "memory.oom.group", "0\n")
    assert not control_groups.are_killed_together()
    write(groups, folder, "memory.oom.group", "1\n")
    assert control_groups.are_killed_together()


def test_the_kills_of_the_own_group_count(groups):
    write(groups, "spark/executor 1", "memory.events", EVENTS)
    write(groups, "", "memory.events", "oom_kill 9\n")
    assert out_of_memory.oom_kills(out_of_memory.oom_kills_file()) == 2


def test_a_container_sees_its_group_at_the_root(groups):
    write(groups, "", "memory.events", EVENTS)
    write(groups, "", "memory.max", f"{1 << 20}\n")
    assert out_of_memory.oom_kills(out_of_memory.oom_kills_file()) == 2
    assert "control group" in out_of_memory.limits()


def test_without_control_groups_the_count_of_kills_is_zero(groups, tmp_path):
    (tmp_path / "own").unlink()
    assert out_of_memory.oom_kills(out_of_memory.oom_kills_file()) == 0
    assert out_of_memory.limits().startswith("the host has ")
