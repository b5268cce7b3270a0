"""Writing and parsing of `tf.train.Example`s, without Spark's tasks."""

from __future__ import annotations

import tempfile
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.ml.linalg import VectorUDT
from pyspark.sql import types

from search.errors import InvalidArgument
from spark_jobs.data.tf_examples import encoded, feature_lists, parsed, selected, specification
from spark_jobs.storage.locations import Location
from tests.properties import examples

# Not imported here: every run of any test would wait for it.
pytestmark = pytest.mark.skipif(find_spec("tensorflow") is None, reason="no TensorFlow")

SOURCE = Location.parse("hdfs://namenode/digits/part-0.tfrecord")


def fixed(shape, dtype, default=None):
    import tensorflow as tf

    return tf.io.FixedLenFeature(shape, tf.as_dtype(dtype), default)


def parse(records, features, compression=None):
    import tensorflow as tf

    with tempfile.NamedTemporaryFile() as file:
        with tf.io.TFRecordWriter(file.name, compression) as writer:
            for record in records:
                writer.write(record)
        return parsed({SOURCE: Path(file.name)}, features, compression)


COLUMNS = {
    "flag": (types.BooleanType(), "int64_list"),
    "byte": (types.ByteType(), "int64_list"),
    "short": (types.ShortType(), "int64_list"),
    "int": (types.IntegerType(), "int64_list"),
    "long": (types.LongType(), "int64_list"),
    "float": (types.FloatType(), "float_list"),
    "double": (types.DoubleType(), "float_list"),
    "string": (types.StringType(), "bytes_list"),
    "binary": (types.BinaryType(), "bytes_list"),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_each_type_of_spark_and_arrays_of_it_have_a_list(name):
    kind, wanted = COLUMNS[name]
    assert feature_lists([(name, kind), ("many", types.ArrayType(kind))]) == {
        name: wanted,
        "many": wanted,
    }


REFUSED = {
    "decimal(10,2)": (types.DecimalType(10, 2), "cast it to double"),
    "timestamp": (types.TimestampType(), "cast it to one of them"),
    "map<string,bigint>": (types.MapType(types.StringType(), types.LongType()), "entries"),
    "struct<a:int>": (types.StructType().add("a", types.IntegerType()), "select its fields"),
    "array<array<int>>": (types.ArrayType(types.ArrayType(types.IntegerType())), "flatten"),
    "array<date>": (types.ArrayType(types.DateType()), "cast it to one of them"),
    "vector": (VectorUDT(), "vector_to_array"),
    "void": (types.NullType(), "or drop it"),
}


@pytest.mark.parametrize("shown", REFUSED)
def test_other_types_are_refused_with_the_column_the_type_and_what_to_do(shown):
    kind, hint = REFUSED[shown]
    with pytest.raises(InvalidArgument) as caught:
        feature_lists([("fine", types.LongType()), ("ü x", kind)])
    assert str(caught.value).startswith("column 'ü x': expected a number, a boolean, a string, ")
    assert f", got {shown}; " in str(caught.value)
    assert hint in str(caught.value)


def test_two_columns_of_one_name_are_refused():
    with pytest.raises(InvalidArgument, match="columns of different names, got two named 'x'"):
        feature_lists([("x", types.LongType()), ("x", types.StringType())])


integers = st.integers(-(2**63), 2**63 - 1)
floats = st.floats(width=32)
rows = st.lists(
    st.fixed_dictionaries(
        {
            "integer": st.none() | integers,
            "flag": st.none() | st.booleans(),
            "float": st.none() | floats,
            "text": st.none() | st.text(max_size=9),
            "bytes": st.none() | st.binary(max_size=9),
            "integers": st.none() | st.lists(integers, max_size=4),
            "floats": st.none() | st.lists(floats, max_size=4),
            "texts": st.none() | st.lists(st.text(max_size=3), max_size=4),
        }
    ),
    max_size=6,
)
SCHEMA = pyarrow.schema(
    {
        "integer": pyarrow.int64(),
        "flag": pyarrow.bool_(),
        "float": pyarrow.float32(),
        "text": pyarrow.string(),
        "bytes": pyarrow.binary(),
        "integers": pyarrow.list_(pyarrow.int64()),
        "floats": pyarrow.list_(pyarrow.float32()),
        "texts": pyarrow.list_(pyarrow.string()),
    }
)
LISTS = {
    "integer": "int64_list",
    "flag": "int64_list",
    "float": "float_list",
    "text": "bytes_list",
    "bytes": "bytes_list",
    "integers": "int64_list",
    "floats": "float_list",
    "texts": "bytes_list",
}


def as_example_has_it(value):
    """Return the list that TensorFlow should find in a feature."""
    items = value if isinstance(value, list) else [value]
    return [item.encode() if isinstance(item, str) else item for item in items]


@examples(100)
@given(rows, st.integers(0, 3))
def test_every_row_is_an_example_and_a_null_leaves_its_feature_out(rows, offset):
    import tensorflow as tf

    batch = pyarrow.RecordBatch.from_pylist(rows, SCHEMA).slice(offset)
    found = [tf.train.Example.FromString(record) for record in encoded(batch, LISTS)]
    assert len(found) == len(rows[offset:])
    for example, row in zip(found, rows[offset:], strict=True):
        features = example.features.feature
        assert set(features) == {name for name, value in row.items() if value is not None}
        for name in features:
            assert features[name].WhichOneof("kind") == LISTS[name]
            values = list(getattr(features[name], LISTS[name]).value)
            np.testing.assert_equal(values, as_example_has_it(row[name]))


def test_an_array_with_a_null_in_it_is_an_error():
    batch = pyarrow.RecordBatch.from_pydict({"x": [[1, None]]})
    with pytest.raises(ValueError, match=r"^column 'x': an array has a null in it"):
        list(encoded(batch, {"x": "int64_list"}))


complete = st.lists(
    st.tuples(integers, floats, st.binary(max_size=9), st.lists(floats, min_size=6, max_size=6)),
    max_size=9,
)


@examples(50)
@given(complete, st.sampled_from([None, "GZIP", "ZLIB"]))
def test_parsed_values_are_those_that_tensorflow_parses(rows, compression):
    import tensorflow as tf

    columns = list(zip(*rows, strict=True)) or [[]] * 4
    schema = {
        "integer": pyarrow.int64(),
        "float": pyarrow.float32(),
        "bytes": pyarrow.binary(),
        "matrix": pyarrow.list_(pyarrow.float32()),
    }
    arrays = [pyarrow.array(c, kind) for c, kind in zip(columns, schema.values(), strict=True)]
    batch = pyarrow.RecordBatch.from_arrays(arrays, names=list(schema))
    kinds = ["int64_list", "float_list", "bytes_list", "float_list"]
    records = list(encoded(batch, dict(zip(schema, kinds, strict=True))))
    features = {
        "matrix": fixed([2, 3], "float32"),
        "integer": fixed([], "int64"),
        "float": fixed([], "float32"),
        "bytes": fixed([], "string"),
    }
    found = parse(records, features, compression)
    assert found.schema.names == list(features)
    wanted = tf.io.parse_example(tf.constant(records, tf.string), features)
    np.testing.assert_array_equal(found["matrix"].to_numpy_ndarray(), wanted["matrix"])
    np.testing.assert_array_equal(found["integer"].to_numpy(), wanted["integer"])
    np.testing.assert_array_equal(found["float"].to_numpy(), wanted["float"])
    assert found["bytes"].to_pylist() == wanted["bytes"].numpy().tolist()


def example(**features):
    import tensorflow as tf

    found = tf.train.Example()
    for name, values in features.items():
        feature = found.features.feature[name]
        kind = {int: "int64_list", float: "float_list", bytes: "bytes_list"}[type(values[0])]
        getattr(feature, kind).value.extend(values)
    return found.SerializeToString()


def test_strings_with_a_shape_are_lists_of_bytes():
    found = parse([example(x=[b"a", b"\0"]), example(x=[b"", b"d"])], {"x": fixed([2], "string")})
    assert found.to_pydict() == {"x": [[b"a", b"\0"], [b"", b"d"]]}


def test_a_feature_may_have_a_default():
    features = {"x": fixed([2], "int64", [7, 8]), "s": fixed([], "string", "none")}
    found = parse([example(y=[1]), example(x=[1, 2], s=[b"x"])], features)
    assert found["x"].to_numpy_ndarray().tolist() == [[7, 8], [1, 2]]
    assert found["s"].to_pylist() == [b"none", b"x"]


WRONG = {
    "Feature: x (data type: float) is required but could not be found": {"y": [1]},
    "Key: x.  Data types don't match. Data type: int64 but expected type: float": {"x": [1]},
    "Key: x.  Number of float values != expected.  Values size: 1 but output shape: [2]": {
        "x": [1.0]
    },
}


@pytest.mark.parametrize("said", WRONG)
def test_an_unexpected_record_is_an_error_with_its_file_and_feature(said):
    with pytest.raises(ValueError) as caught:
        parse([example(x=[1.0, 2.0]), example(**WRONG[said])], {"x": fixed([2], "float32")})
    assert str(caught.value) == f"{SOURCE}: {said}"


def test_a_record_that_is_no_example_is_an_error_with_its_file():
    with pytest.raises(ValueError, match=f"^{SOURCE}: Could not parse example input, value: 'gar"):
        parse([b"garbage"], {"x": fixed([2], "float32")})


@pytest.mark.parametrize("compression", [None, "GZIP"])
def test_a_file_that_has_no_records_is_an_error(tmp_path, compression):
    (tmp_path / "x").write_bytes(b"garbage" * 9)
    with pytest.raises(OSError, match=f"^{SOURCE}: no TFRecord file, or a truncated one$"):
        parsed({SOURCE: tmp_path / "x"}, {"x": fixed([], "int64")}, compression)


BAD_FEATURES = [
    ({}, "features: expected a dict of names to tf.io.FixedLenFeature, got {}"),
    (["x"], "features: expected a dict of names"),
    ({"x": "int64"}, "features['x']: expected a tf.io.FixedLenFeature of a "),
]
BAD_FIXED = [
    ([None, 2], "int64", "features['x']: expected a tf.io.FixedLenFeature of a known shape, got F"),
    ([0], "int64", "features['x']: expected a tf.io.FixedLenFeature of a known shape, got Fixed"),
    ([], "int32", "features['x'].dtype: expected tf.float32, tf.int64 or tf.string, which exampl"),
]


@pytest.mark.parametrize(("features", "message"), BAD_FEATURES)
def test_invalid_features_are_refused(features, message):
    with pytest.raises(InvalidArgument) as caught:
        selected(features, None)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(("shape", "dtype", "message"), BAD_FIXED)
def test_features_that_cannot_be_a_column_are_refused(shape, dtype, message):
    with pytest.raises(InvalidArgument) as caught:
        selected({"x": fixed(shape, dtype)}, None)
    assert str(caught.value).startswith(message)


def test_columns_select_among_the_features_in_their_order():
    features = {name: fixed([], "int64") for name in "abc"}
    assert list(selected(features, None)) == ["a", "b", "c"]
    assert list(selected(features, ["c", "a"])) == ["c", "a"]
    for columns in (["d"], []):
        with pytest.raises(InvalidArgument, match=r"columns: expected some of \['a', 'b', 'c'\]"):
            selected(features, columns)


def test_features_that_differ_have_different_specifications():
    features = [
        fixed([], "int64"),
        fixed([1], "int64"),
        fixed([], "float32"),
        fixed([], "int64", 0),
        fixed([], "int64", 1),
        fixed([], "string", b"a"),
        fixed([], "string", b"a\0"),
    ]
    found = [str(specification({"x": feature})) for feature in features]
    assert len(set(found)) == len(features)
    assert specification({"x": fixed((), np.int64)}) == specification({"x": features[0]})
