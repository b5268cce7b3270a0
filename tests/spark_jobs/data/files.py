"""Files with data, and programs that read them."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import fsspec
import pyarrow
import pyarrow.parquet

from tests import ROOT


def put(path, content):
    with fsspec.open(path, "wb", auto_mkdir=True) as file:
        file.write(content)


def contents(paths):
    return [Path(path).read_bytes() for path in paths]


def put_table(path, **columns):
    table = pyarrow.table(columns)
    sink = pyarrow.BufferOutputStream()
    pyarrow.parquet.write_table(table, sink)
    put(path, sink.getvalue().to_pybytes())


def put_records(tensorflow, path, records, compression=None):
    with tempfile.NamedTemporaryFile() as file:
        with tensorflow.io.TFRecordWriter(file.name, compression) as writer:
            for record in records:
                writer.write(record)
        put(path, Path(file.name).read_bytes())


def records_of(dataset):
    return [record.numpy() for record in dataset]


def run(program, **environment):
    return subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, **environment},
        cwd=ROOT,
    )


def put_rows(path, rows):
    buffer = pyarrow.BufferOutputStream()
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), buffer)
    put(path, buffer.getvalue().to_pybytes())


def put_examples(tensorflow, path, numbers, compression=None):
    """Write examples with the features `n`, a number, and `xy`, twice that number."""
    records = []
    for number in numbers:
        example = tensorflow.train.Example()
        example.features.feature["n"].int64_list.value.append(number)
        example.features.feature["xy"].float_list.value.extend([number, number])
        records.append(example.SerializeToString())
    put_records(tensorflow, path, records, compression)
