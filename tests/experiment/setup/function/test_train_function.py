import fnmatch
import functools
import inspect
import linecache
import pickle
import threading
import traceback
import types

import cloudpickle
import pyspark
import pytest
from pyspark.accumulators import AddingAccumulatorParam

from experiment.setup.function.train_function import (
    LARGEST_FUNCTION,
    check_arguments,
    pickle_arguments,
    pickle_function,
    required_arguments,
    sizes_of_variables,
)
from search.errors import InvalidArgument

LOCK = threading.Lock()  # a global that cannot be pickled


def refusal(function, *arguments):
    with pytest.raises(InvalidArgument) as caught:
        function(*arguments)
    assert caught.value.name == "train"
    return caught.value


class Model:
    def __init__(self, lock=None):
        self.lock = lock

    def train(self, lr):
        return lr

    def __call__(self, lr):
        return lr

    @classmethod
    def build(cls, lr):
        return lr

    @staticmethod
    def fit(lr):
        return lr


def accepts_lr(lr):
    return lr


def logged(function):
    @functools.wraps(function)
    def call(*args, **kwargs):
        return function(*args, **kwargs)

    return call


def with_data(function):
    @functools.wraps(function)
    def call(**params):
        return function([1, 2], **params)

    return call


def with_three_epochs(function):
    @functools.wraps(function)
    def call(lr):
        return function(lr, epochs=3)

    return call


class Logged:
    @logged
    def train(self, lr):
        return lr


@pytest.mark.parametrize(
    "train",
    [
        accepts_lr,
        lambda lr: lr,
        lambda lr, epochs=3: lr,
        lambda *, lr: lr,
        lambda *args, lr: lr,
        lambda **kwargs: kwargs,
        lambda lr, *args, **kwargs: lr,
        lambda first=1, /, *, lr: lr,
        functools.partial(lambda data, lr: lr, "data"),
        functools.partial(lambda data, lr: lr, data="data"),
        functools.partial(lambda lr, data: lr, data="data"),
        functools.partial(accepts_lr, lr=0.5),
        logged(accepts_lr),
        with_data(lambda data, lr: lr),
        logged(with_data(lambda data, lr: lr)),
        functools.partial(with_data(lambda data, lr, epochs: lr), epochs=3),
        functools.lru_cache(accepts_lr),
        Logged().train,
        Model().train,
        Model(),
        Model.build,
        Model().build,
        Model.fit,
    ],
)
def test_a_function_that_takes_the_argument_is_accepted(train):
    check_arguments(train, ["lr"])


def test_a_class_is_checked_by_its_constructor():
    check_arguments(Model, ["lock"])
    assert "accepts 'lr'" in refusal(check_arguments, Model, ["lr"]).expected


def test_a_builtin_without_a_signature_is_not_checked():
    with pytest.raises(ValueError, match="no signature"):
        inspect.signature(dict)
    check_arguments(dict, ["anything"])


@pytest.mark.parametrize(
    "train", [None, 5, "train", pytest.param([accepts_lr], id="list")], ids=repr
)
def test_a_value_that_is_not_callable_is_refused(train):
    error = refusal(check_arguments, train, ["lr"])
    assert error.expected == "a function"
    assert error.got.startswith(repr(train)[:9])


async def coroutine(lr):
    return lr


def generator(lr):
    yield lr


async def both(lr):
    yield lr


class Later:
    async def __call__(self, lr):
        return lr

    async def method(self, lr):
        return lr


@pytest.mark.parametrize(
    ("train", "got"),
    [
        (coroutine, "an async function"),
        (functools.partial(coroutine), "an async function"),
        (Later(), "an async function"),
        (Later().method, "an async function"),
        (generator, "one with yield, a generator"),
        (both, "one with yield, a generator"),
    ],
)
def test_a_function_whose_call_returns_no_score_is_refused(train, got):
    error = refusal(check_arguments, train, ["lr"])
    assert error.got == got


@pytest.mark.parametrize(
    ("train", "accepted"),
    [
        (lambda x, y: x, "x, y"),
        (lambda: 0, "no arguments"),
        (lambda *args: 0, "no arguments"),
        (lambda *, x: x, "x"),
        (functools.partial(lambda data, lr: lr, 1, 2), "no arguments"),
        (functools.partial(lambda lr, x: lr, 1), "x"),
    ],
)
def test_an_argument_that_is_not_accepted_is_named_with_the_accepted_ones(train, accepted):
    error = refusal(check_arguments, train, ["lr"])
    assert error.expected == "a function that accepts 'lr'"
    assert error.got == f"one that accepts {accepted}"


def trains(lr, epochs):
    return lr


@pytest.mark.parametrize(
    "train",
    [
        with_three_epochs(trains),
        logged(with_three_epochs(trains)),
        functools.partial(logged(trains), epochs=3),
        functools.partial(logged(with_three_epochs(trains))),
        functools.lru_cache(with_three_epochs(trains)),
    ],
)
def test_a_decorator_that_takes_certain_arguments_decides_which(train):
    assert required_arguments(train) == ["lr"]
    check_arguments(train, ["lr"])


@pytest.mark.parametrize("train", [logged(accepts_lr), Logged().train, with_three_epochs(trains)])
def test_an_argument_that_a_decorated_function_does_not_accept_is_refused(train):
    assert refusal(check_arguments, train, ["lr", "momentum"]).got == "one that accepts lr"


def test_self_is_no_argument_of_a_bound_method():
    assert "'self'" in refusal(check_arguments, Model().train, ["lr", "self"]).expected
    check_arguments(Model.train, ["lr", "self"])


@pytest.mark.parametrize(
    "train",
    [
        lambda lr, momentum=0.0: lr,
        lambda lr, **kwargs: lr,
        lambda *, lr, momentum=None, **kwargs: lr,
        functools.partial(lambda lr, momentum: lr, momentum=0.5),
    ],
)
def test_a_conditional_hyperparameter_with_a_default_is_accepted(train):
    check_arguments(train, ["lr", "momentum"], ["momentum"])


@pytest.mark.parametrize(
    "train", [lambda lr, momentum: lr, lambda momentum, **kwargs: 0, lambda *, lr, momentum: lr]
)
def test_a_conditional_hyperparameter_needs_a_default(train):
    error = refusal(check_arguments, train, ["lr", "momentum"], ["momentum"])
    assert error.expected.startswith("a default for its argument 'momentum'")
    assert error.hint.startswith("write momentum=None")
    check_arguments(train, ["lr", "momentum"])


def test_a_conditional_hyperparameter_that_is_not_accepted_is_refused():
    error = refusal(check_arguments, accepts_lr, ["lr", "momentum"], ["momentum"])
    assert error.expected == "a function that accepts 'momentum'"


@pytest.mark.parametrize(
    "train",
    [
        lambda lr, epochs: lr,
        lambda lr, *, epochs: lr,
        lambda epochs, **kwargs: epochs,
        functools.partial(lambda data, epochs, lr: lr, "data"),
    ],
)
def test_a_required_argument_without_a_hyperparameter_is_named(train):
    error = refusal(check_arguments, train, ["lr"])
    assert error.expected == "a hyperparameter for its argument 'epochs'"
    assert error.got == "lr"
    assert error.hint == "add 'epochs' or give the argument a default"


def test_a_positional_only_argument_is_refused_unless_it_has_a_default():
    for train, names in [
        (lambda x, /, lr: lr, ["lr"]),
        (lambda x, /: x, ["x"]),
        (lambda x, /, **others: x, ["x"]),
        (lambda x=1, /, lr=2: lr, ["x", "lr"]),
    ]:
        error = refusal(check_arguments, train, names)
        assert error.expected == "arguments that can be passed by name"
        assert error.got == "'x', by position only"
    check_arguments(lambda x=1, /, **kwargs: x, ["lr"])


def test_a_name_that_no_argument_can_have_is_accepted_by_kwargs():
    check_arguments(lambda **kwargs: kwargs, ["learning rate", "1", "class"])
    assert "'learning rate'" in refusal(check_arguments, accepts_lr, ["learning rate"]).expected


def test_names_may_be_an_iterator_or_a_dict():
    check_arguments(lambda a, b: a, iter(["a", "b"]))
    check_arguments(lambda a, b: a, {"a": 1, "b": 2})


def counter(start):
    def train(x, *, step=2):
        return start + x * step

    return train


@pytest.mark.parametrize(
    ("train", "value"),
    [
        (counter(10), 16),
        (lambda x: x + 1, 4),
        (functools.partial(counter(10), step=1), 13),
        (logged(counter(1)), 7),
    ],
)
def test_a_function_survives_pickling(train, value):
    assert cloudpickle.loads(pickle_function(train))(3) == value


def test_bound_methods_and_objects_keep_their_state_when_pickled():
    model = Model()
    model.offset = 5
    assert cloudpickle.loads(pickle_function(model.train))(0.5) == 0.5
    assert cloudpickle.loads(pickle_function(model)).offset == 5


def test_a_function_that_refers_to_itself_can_be_pickled():
    def train(n):
        return 1 if n == 0 else n * train(n - 1)

    assert cloudpickle.loads(pickle_function(train))(5) == 120


def test_a_function_and_a_list_that_refer_to_each_other_can_be_pickled():
    parts = []

    def train(n):
        return parts[1] is train and parts[0] is parts and n

    parts += [parts, train]
    assert cloudpickle.loads(pickle_function(train))(5) == 5


def assert_names(train, name, kind="lock"):
    error = refusal(pickle_function, train)
    assert error.expected == "a function that can be pickled"
    assert error.got == f"one that refers to {name!r} ({kind}): cannot pickle '_thread.lock' object"
    assert error.hint == f"make {name!r} inside the train function"
    assert str(error) == f"train: expected {error.expected}, got {error.got}; {error.hint}"


@pytest.mark.fault(14)
def test_an_unpicklable_object_in_the_closure_is_named():
    connection, fine = threading.Lock(), [1, 2]

    def train(lr):
        return fine, connection

    assert_names(train, "connection")


@pytest.mark.fault(14)
def test_an_unpicklable_object_among_the_globals_is_named():
    def train(lr):
        return accepts_lr, LOCK

    assert_names(train, "LOCK")


def test_an_unpicklable_object_among_the_defaults_is_named():
    def train(lr, fine=1, guard=LOCK):
        return lr

    def keyword_only(lr, *, fine=1, guard=LOCK):
        return lr

    assert_names(train, "guard")
    assert_names(keyword_only, "guard")


def test_the_object_of_a_bound_method_is_named():
    assert_names(Model(LOCK).train, "self", "Model")


def test_the_attribute_of_a_callable_object_is_named():
    assert_names(Model(LOCK), "lock")


def test_a_container_of_an_unpicklable_object_is_named():
    tools = {"guard": LOCK}

    def train(lr):
        return tools

    assert_names(train, "tools", "dict")


def test_a_helper_that_refers_to_an_unpicklable_object_is_named():
    def helper():
        return LOCK

    def train(lr):
        return helper()

    assert_names(train, "helper", "function")


def test_an_unpicklable_object_is_named_although_the_function_refers_to_itself():
    guard = threading.Lock()

    def train(lr):
        return train, guard

    assert_names(train, "guard")


def test_an_unpicklable_object_behind_a_decorator_is_named():
    guard = threading.Lock()

    @logged
    def train(lr):
        return guard

    assert_names(train, "guard")


@pytest.mark.parametrize(
    "train",
    [functools.partial(accepts_lr, lr=LOCK), functools.partial(lambda lr: LOCK)],
    ids=["argument", "function"],
)
def test_a_partial_that_cannot_be_pickled_is_refused_with_the_reason(train):
    error = refusal(pickle_function, train)
    assert error.expected == "a function that can be pickled"
    assert "cannot pickle '_thread.lock' object" in error.got


class Context:
    """An object that refuses to be pickled, as pyspark's SparkContext does."""

    def __reduce__(self):
        raise RuntimeError(
            "[CONTEXT_ONLY_VALID_ON_DRIVER] It appears that you are attempting to reference "
            "SparkContext from a broadcast variable, action, or transformation.\nMore lines."
        )


@pytest.mark.fault(14)
def test_a_spark_context_is_refused_with_our_own_message():
    spark = [Context()]

    def train(lr):
        return spark

    error = refusal(pickle_function, train)
    assert error.got == (
        "one that refers to 'spark' (list): the SparkContext exists on the driver only"
    )


@pytest.fixture
def broadcast():
    """A broadcast as on a driver that can be pickled, without Spark."""
    made = pyspark.Broadcast(path="/nowhere")
    made._jbroadcast = types.SimpleNamespace(id=lambda: 7)
    made._pickle_registry = set()
    return made


def test_a_broadcast_is_refused_as_trials_cannot_read_it(broadcast):
    error = refusal(pickle_function, lambda lr: broadcast.value)
    assert error.got == (
        "one that refers to 'broadcast' (Broadcast): Spark sends no broadcasts to trials"
    )
    assert error.hint.endswith("assign its value to a variable: table = broadcast.value")
    assert not broadcast._pickle_registry  # else Spark would send it with the caller's next job
    with pytest.raises(
        InvalidArgument, match=r"args\[0\]: .* no broadcasts .*; outside the function"
    ):
        pickle_arguments([broadcast], {})


def test_an_accumulator_is_refused_as_it_would_count_nothing():
    total = pyspark.Accumulator(0, 0, AddingAccumulatorParam(0))
    error = refusal(pickle_function, lambda lr: total.add(1))
    assert error.got == (
        "one that refers to 'total' (Accumulator): trials cannot add to an accumulator of Spark"
    )
    assert error.hint == "return the number instead"


def test_only_the_first_line_of_a_reason_is_shown():
    class Odd:
        def __reduce__(self):
            raise ValueError("first line\nsecond line")

    odd = Odd()
    error = refusal(pickle_function, lambda lr: odd)
    assert error.got == "one that refers to 'odd' (Odd): first line"


def test_an_error_without_a_message_is_named_by_its_type():
    class Odd:
        def __reduce__(self):
            raise KeyError

    odd = Odd()
    assert refusal(pickle_function, lambda lr: odd).got.endswith("(Odd): KeyError")


def test_a_nesting_too_deep_to_be_pickled_is_refused_and_named():
    deep = []
    for _ in range(20_000):
        deep = [deep]
    error = refusal(pickle_function, lambda lr: deep)
    assert "'deep' (list)" in error.got
    assert "recursion" in error.got


@pytest.mark.fault(14)
def test_data_beyond_the_limit_is_refused_and_named():
    data = bytes(200 << 20)

    def train(lr):
        return len(data)

    error = refusal(pickle_function, train)
    assert error.got == (
        "one that refers to 'data' (bytes): more than 64 MiB; every slot would get a copy of it"
    )
    assert "'data'" in error.hint


def test_data_whose_total_is_too_large_is_refused():
    first, second = bytes(LARGEST_FUNCTION // 2), bytearray(LARGEST_FUNCTION // 2)
    error = refusal(pickle_function, lambda lr: (first, second))
    assert error.got == "more than 64 MiB; every slot would get a copy of it"


def test_data_below_the_limit_is_accepted():
    data = bytes(1 << 20)
    pickled = pickle_function(lambda: data)
    assert 1 << 20 < len(pickled) < LARGEST_FUNCTION
    assert cloudpickle.loads(pickled)() == data


LOCK = threading.Lock()


def loops():
    def train(lr):
        return [LOCK for _ in range(3)]

    return train


def inner():
    def train(lr):
        def step():
            return LOCK

        return step()

    return train


def guarded():
    LOCK2 = threading.Lock()

    @functools.wraps(accepts_lr)
    def call(*args, **kwargs):
        with LOCK2:
            return accepts_lr(*args, **kwargs)

    return call


def repeats():
    lock = threading.Lock()

    def again(lr):
        return again, lock

    return again


def partial_self():
    lock = threading.Lock()
    return functools.partial(lambda data, lr: lock, 1)


@pytest.mark.fault(14)
@pytest.mark.parametrize(
    ("train", "name"),
    [
        (functools.partial(accepts_lr, lr=LOCK), "lr"),
        (functools.partial(lambda data, lr: lr, LOCK), "data"),
        (partial_self(), "lock"),
        (loops(), "LOCK"),
        (inner(), "LOCK"),
        (guarded(), "LOCK2"),
        (repeats(), "lock"),
    ],
)
def test_an_unpicklable_object_is_named_wherever_it_is(train, name):
    with pytest.raises(InvalidArgument, match=f"refers to '{name}' "):
        pickle_function(train)


def test_an_empty_cell_does_not_hide_the_reason():
    lock = threading.Lock()

    def train(lr):
        return lock, later

    if train is None:
        later = 1
    with pytest.raises(InvalidArgument, match="'lock'"):
        pickle_function(train)


@pytest.fixture
def cell(monkeypatch):
    """Return a function that runs a notebook's cell, whose file does not exist, for its names."""
    monkeypatch.setattr(linecache, "cache", {})

    def run(source, file="/tmp/ipykernel_1/2.py"):
        names = {"__name__": "__main__"}
        exec(compile(source, file, "exec"), names)
        linecache.cache[file] = len(source), None, source.splitlines(keepends=True), file
        return names

    return run


def sent(function):
    """Return a function as an executor gets it, which knows none of the driver's files."""
    pickled = pickle_function(function)
    linecache.cache.clear()
    return pickle.loads(pickled)


CELL = """import functools

def doubled(function):
    @functools.wraps(function)
    def call(x):
        return 2 * function(x)

    return call

def helper(x):
    return 1 / x

@doubled
def train(x):
    nested = lambda: helper(x)
    return nested()
"""


def test_the_source_of_a_notebooks_functions_is_sent(cell):
    train = sent(cell(CELL)["train"])
    assert train(2) == 1.0
    inner = train.__wrapped__
    assert inspect.getsource(inner) == CELL[CELL.index("@doubled") :]
    assert inspect.getsource(inner.__globals__["helper"]) == "def helper(x):\n    return 1 / x\n"
    assert inspect.getsource(train.__code__).startswith("    @functools.wraps")
    with pytest.raises(ZeroDivisionError) as caught:
        train(0)
    assert [frame.line for frame in traceback.extract_tb(caught.value.__traceback__)][1:] == [
        "return 2 * function(x)",
        "return nested()",
        "nested = lambda: helper(x)",
        "return 1 / x",
    ]


CACHED = """import functools

@functools.cache
def fibonacci(n):
    return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)

class Data:
    @functools.lru_cache(maxsize=2, typed=True)
    def read(self, name):
        return [name]

def train(x):
    data = Data()
    return fibonacci(x), data.read("a") is data.read("a"), Data.read.cache_parameters()
"""


def test_functions_with_a_cache_are_sent_with_an_empty_one(cell):
    names = cell(CACHED)
    names["fibonacci"](5)
    train = sent(names["train"])
    assert train.__globals__["fibonacci"].cache_info().currsize == 0
    assert train(60) == (1548008755920, True, {"maxsize": 2, "typed": True})
    assert sent(names["fibonacci"])(60) == 1548008755920


def test_the_source_of_a_class_is_sent_with_its_methods(cell):
    source = "class Model:\n    def train(self, x):\n        return x\n"
    train = sent(cell(source)["Model"]().train)
    assert inspect.getsource(train) == "    def train(self, x):\n        return x\n"


def test_functions_of_several_cells_keep_their_sources(cell):
    names = cell("def helper(x):\n    return x\n", "/tmp/ipykernel_1/1.py")
    other = cell("\n\ndef train(x):\n    return helper(x)\n")["train"]
    train = sent(types.FunctionType(other.__code__, names))
    assert inspect.getsource(train) == "def train(x):\n    return helper(x)\n"
    helper = train.__globals__["helper"]
    assert inspect.getsource(helper) == "def helper(x):\n    return x\n"


def test_a_function_whose_source_is_unknown_is_sent_without_it(cell):
    train = cell("def train(x):\n    return x\n")["train"]
    linecache.cache.clear()
    assert sent(train)(3) == 3


@pytest.mark.parametrize(
    "source", ["", "x = 1\n", "\ndef train(x):\n    return (\n", "\ndef train(x):\n    '''"]
)
def test_a_source_that_has_changed_since_is_no_error(cell, source):
    train = cell("\ndef train(x):\n    return x\n")["train"]
    file = train.__code__.co_filename
    linecache.cache[file] = len(source), None, source.splitlines(keepends=True), file
    assert sent(train)(3) == 3


@pytest.mark.parametrize("head", ["from __future__ import annotations\n", ""])
def test_annotations_that_are_not_evaluated_stay_so(cell, head):
    """AutoGraph knows it by the name that the import from `__future__` defines."""
    train = sent(cell(head + "def train(x):\n    return x\n")["train"])
    assert ("annotations" in train.__globals__) == bool(head)


def test_a_function_with_a_cache_that_executors_import_is_sent_by_its_name():
    assert sent(fnmatch._compile_pattern) is fnmatch._compile_pattern


@pytest.mark.parametrize("function", [fnmatch.fnmatchcase, functools.partial(fnmatch.fnmatchcase)])
def test_a_cache_around_a_function_that_executors_import_is_sent(function):
    assert sent(functools.cache(function))("a", "[a-c]")


def test_a_function_that_executors_import_is_sent_by_its_name():
    assert len(pickle_function(accepts_lr)) < 200


def test_a_builtin_without_a_signature_has_no_required_arguments():
    with pytest.raises(ValueError, match="no signature"):
        inspect.signature(type)
    assert required_arguments(type) == []
    assert required_arguments(trains) == ["lr", "epochs"]


LARGE, SMALL = b"l" * 100_000, b"s" * 1000


class Trainer:
    def __init__(self):
        self.small, self.large, self.lock = SMALL, LARGE, LOCK

    def __call__(self, lr):
        return lr


@pytest.mark.parametrize(
    ("train", "names"),
    [
        (functools.partial(lambda data, more, lr: lr, SMALL, more=LARGE), ["more", "data"]),
        (Trainer(), ["large", "small"]),
        (lambda lr: (SMALL, LARGE, LOCK), ["LARGE", "SMALL"]),
    ],
)
def test_the_variables_of_a_function_have_sizes_unless_they_cannot_be_pickled(train, names):
    sizes = sizes_of_variables(train)
    assert list(sizes) == names
    assert 100_000 < sizes[names[0]] < 101_000
