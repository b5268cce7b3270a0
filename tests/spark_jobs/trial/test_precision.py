"""The precision in which Keras computes in a trial."""

import cloudpickle
import pytest

from search.errors import InvalidArgument
from search.trial import Trial
from spark_jobs.messages import Attempt, decode, encode
from spark_jobs.trial import precision as module
from spark_jobs.trial.precision import computing_in, read_precision, why_slow
from spark_jobs.trial.trial_process import Program, evaluate

XEON = "processor\t: 0\nflags\t\t: fpu sse2 avx512f {}\nbugs\t\t: spectre_v1\n"


def policy():
    import keras

    return keras.config.dtype_policy().name


def policy_of_trial(x):
    return {"half": float(policy() == "mixed_bfloat16"), "x": x}


def program(**settings):
    function = cloudpickle.dumps(policy_of_trial)
    return Program(function=function, key="half", direction="max", **settings)


def test_a_precision_is_read_by_its_name():
    assert read_precision("precision", None) is None
    assert read_precision("precision", "mixed_float16") == "mixed_float16"
    expected = r"^precision: expected 'mixed_bfloat16', 'mixed_float16' or None, got 'mixed_float'"
    with pytest.raises(InvalidArgument, match=expected):
        read_precision("precision", "mixed_float")


def test_keras_computes_in_it_in_the_block_alone():
    before = policy()
    with computing_in("mixed_bfloat16"):
        assert policy() == "mixed_bfloat16"
    assert policy() == before
    with computing_in(None):
        assert policy() == before


def test_the_policy_is_restored_after_an_error():
    before = policy()
    with pytest.raises(ZeroDivisionError), computing_in("mixed_bfloat16"):
        raise ZeroDivisionError
    assert policy() == before


def test_float16_needs_a_gpu(monkeypatch):
    import tensorflow as tf

    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: [])
    before = policy()
    refused = r"^precision: expected 'mixed_bfloat16' or None for a trial that has no GPU, got 'mi"
    with pytest.raises(InvalidArgument, match=refused), computing_in("mixed_float16"):
        raise AssertionError("not entered")
    assert policy() == before
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: ["GPU:0"])
    with computing_in("mixed_float16"):
        assert policy() == "mixed_float16"


def test_a_precision_needs_keras(monkeypatch):
    monkeypatch.setattr(module, "is_installed", lambda name: False)
    with pytest.raises(InvalidArgument, match="^precision: expected None where Keras is not inst"):
        computing_in("mixed_bfloat16").__enter__()


def test_a_trial_calls_its_function_in_its_precision(tmp_path):
    half = decode(encode(program(precision="mixed_bfloat16")), Program)
    attempt = Attempt(Trial(0, {"x": 1.0}))
    assert evaluate(half, attempt, tmp_path).value == 1.0
    assert evaluate(program(), attempt, tmp_path).value == 0.0


def test_a_trial_without_a_gpu_fails_with_a_sentence(tmp_path, monkeypatch):
    import tensorflow as tf

    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: [])
    half = program(precision="mixed_float16")
    outcome = evaluate(half, Attempt(Trial(0, {"x": 1.0})), tmp_path)
    assert outcome.status == "failed"
    assert outcome.error.message.endswith(
        "InvalidArgument: precision: expected 'mixed_bfloat16' or None for a trial that has no "
        "GPU, got 'mixed_float16'; without a GPU float16 is slower than float32, while bfloat16 "
        "may be faster"
    )


@pytest.mark.parametrize("flag", ["amx_bf16", "avx512_bf16"])
def test_processors_with_arithmetic_of_bfloat16_are_not_warned_of(tmp_path, flag):
    (tmp_path / "cpuinfo").write_text(XEON.format(flag))
    assert why_slow("mixed_bfloat16", gpus=0, cpuinfo=tmp_path / "cpuinfo") == ""


def test_others_are_warned_of_unless_trials_have_gpus(tmp_path):
    file = tmp_path / "cpuinfo"
    file.write_text(XEON.format("avx512_fp16"))
    sentence = why_slow("mixed_bfloat16", gpus=0, cpuinfo=file)
    assert "has neither AMX nor AVX512-BF16" in sentence
    assert why_slow("mixed_bfloat16", gpus=1, cpuinfo=file) == ""
    assert why_slow(None, gpus=0, cpuinfo=file) == ""
    assert why_slow("mixed_bfloat16", gpus=0, cpuinfo=tmp_path / "missing") == ""
    file.write_text("Features\t: fp asimd bf16\n")
    assert why_slow("mixed_bfloat16", gpus=0, cpuinfo=file) == ""
