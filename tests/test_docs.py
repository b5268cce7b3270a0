"""README and documentation: their Python runs, and their links and figures are valid."""

from __future__ import annotations

import doctest
import itertools
import linecache
import re
import runpy
import subprocess
import sys
from typing import NamedTuple

import pytest

import experiment
import search.searcher
from tests import ROOT
from tests.servers.connect import ConnectServer

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]
LINKED = [*PAGES, *(path for path in ROOT.glob("*.md") if path.name != "README.md")]
_FENCE = re.compile(r"^```(\w+)\n(.*?)^```\n", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\((?!https?:|#)([^)#]+)[^)]*\)")


class Block(NamedTuple):
    """A block of Python in a page.

    Attributes:
        line: The line of the page before the block.
        code: The source code.
        output: The output shown directly below; None without.
    """

    line: int
    code: str
    output: str | None


def blocks(text: str) -> list[Block]:
    """Return the blocks of Python of a page, in order."""
    found = []
    fences = list(_FENCE.finditer(text))
    for fence, after in itertools.zip_longest(fences, fences[1:]):
        if fence[1] == "python":
            below = after is not None and not text[fence.end() : after.start()].strip()
            output = after[2] if after is not None and below and after[1] == "text" else None
            found.append(Block(text.count("\n", 0, fence.start()) + 1, fence[2], output))
    return found


def run(page: str, text: str, spark: object, capsys: pytest.CaptureFixture[str]) -> None:
    """Run the Python of a page in one namespace, as a notebook runs its cells; compare its output.

    A block has a file of its own, which does not exist but has a source.
    """
    names = {"__name__": "__main__", "spark": spark}  # functions of __main__ are pickled by value
    try:
        for block in blocks(text):
            file, source = f"{page}:{block.line}", "\n" * block.line + block.code
            linecache.cache[file] = len(source), None, source.splitlines(keepends=True), file
            exec(compile(source, file, "exec"), names)
            printed = capsys.readouterr().out
            if block.output is not None:
                flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
                same = doctest.OutputChecker().check_output(block.output, printed, flags)
                assert same, f"{page}:{block.line} prints\n{printed}"
    finally:
        for value in names.values():
            if isinstance(value, experiment.TensorBoard):
                value.close()


# Pages that need servers or a session of their own.
WITH_SERVERS = ("docs/cluster/connect.md", "docs/cluster/gpus.md", "docs/cluster/hdfs.md")
WITH_PYTHON = [
    name
    for name, page in zip(NAMES, PAGES, strict=True)
    if name not in WITH_SERVERS and blocks(page.read_text(encoding="utf-8"))
]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The current folder of a page's reader, without a display."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    return tmp_path


_MARKS = {
    "README.md": (pytest.mark.slow, pytest.mark.contract),
    "docs/cluster/before.md": pytest.mark.slow,
    "docs/guide/algorithms.md": pytest.mark.slow,
    "docs/guide/early_stopping.md": pytest.mark.slow,
    "docs/guide/large_batches.md": pytest.mark.slow,
    "docs/guide/strategies.md": pytest.mark.slow,
    "docs/guide/train_function.md": pytest.mark.slow,
}


@pytest.mark.parametrize(
    "page", [pytest.param(name, marks=_MARKS.get(name, ())) for name in WITH_PYTHON]
)
def test_the_python_of_a_page_runs(page, spark, folder, capsys):
    text = (ROOT / page).read_text(encoding="utf-8")
    if page == "README.md":  # 8 models instead of 40; `make demo` trains all
        text, count = re.subn(
            r"\bpopsize=10, generations=3, c", "popsize=4, generations=1, c", text
        )
        assert count == 1
    run(page, text, spark, capsys)


@pytest.mark.slow
def test_the_python_of_the_page_about_hdfs_runs(hdfs, sparks, folder, capsys):
    page = "docs/cluster/hdfs.md"
    hadoop = {f"spark.hadoop.{name}": value for name, value in hdfs.settings().items()}
    text = (ROOT / page).read_text(encoding="utf-8")
    text = text.replace("hdfs://namenode:8020", f"{hdfs.uri}/pages")  # others have its /digits
    run(page, text, sparks.get("local[2]", **hadoop), capsys)


@pytest.mark.slow
def test_the_python_of_the_page_about_gpus_runs(one_executor, folder, capsys):
    page = "docs/cluster/gpus.md"
    run(page, (ROOT / page).read_text(encoding="utf-8"), one_executor, capsys)


@pytest.mark.slow
def test_the_python_of_the_page_about_spark_connect_runs(folder):
    text = (ROOT / "docs/cluster/connect.md").read_text(encoding="utf-8")
    with ConnectServer(folder / "server", "local[2]") as server:  # beside no classic session
        code = "\n".join(block.code for block in blocks(text))
        program = code.replace("sc://localhost:15002", server.address)
        subprocess.run([sys.executable, "-c", program], check=True, timeout=240)


@pytest.mark.parametrize("page", LINKED, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_links_of_a_page_lead_to_files_of_the_checkout(page):
    links = _LINK.findall(page.read_text(encoding="utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_the_paths_in_the_table_of_seams_lead_to_files():
    """Links alone are not enough: these are written as code."""
    page = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    paths = re.findall(r"`((?:tests|experiment|search|spark_jobs)/[\w/.-]+)`", page)
    assert "tests/search/test_searcher.py" in paths
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_the_page_about_algorithms_has_the_optional_parts_of_a_searcher():
    page = (ROOT / "docs/guide/algorithms.md").read_text(encoding="utf-8")
    parts = [value for value in vars(search.searcher).values() if _is_optional_part(value)]
    names = {name for part in parts for name in vars(part) if not name.startswith("_")}
    assert names >= {"judge", "ask_again"}
    assert {name for name in names if not re.search(rf"^\| `{name}\b", page, re.MULTILINE)} == set()


def _is_optional_part(value):
    return isinstance(value, type) and "optional part" in (value.__doc__ or "").partition("\n")[0]


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 200


def test_the_versions_of_the_readme_are_those_that_are_tested():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    pinned = (ROOT / ".ci/constraints.txt").read_text(encoding="utf-8")
    packages = {"Spark": "pyspark", "TensorFlow": "tensorflow_cpu", "Keras": "keras", "JAX": "jax"}
    for row, package in packages.items():
        (version,) = re.findall(rf"^{package}==(.+)$", pinned, re.MULTILINE)
        assert re.search(rf"^\| {row}[^|]*\| {re.escape(version)} \|", readme, re.MULTILINE)


def test_the_long_description_has_no_links_into_a_checkout():
    backend = runpy.run_path(str(ROOT / ".ci" / "build_backend.py"))
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    text = backend["long_description"](readme)
    assert _LINK.findall(readme)
    assert _LINK.findall(text) == []
    assert "<!--" not in text
    assert "$ make" not in text


def test_a_deprecated_function_warns_at_the_callers_line_and_works_as_before():
    (block,) = blocks((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"))
    names = {}
    exec(block.code, names)
    expected = r"grid_search will be removed in version 0\.4; use experiment\.launch"
    with (
        pytest.warns(FutureWarning, match=expected) as warned,
        pytest.raises(TypeError, match="did you mean 'verbose'"),
    ):
        names["grid_search"](None, print, {"x": [1]}, verbos=2)
    assert [warning.filename for warning in warned] == [__file__]


def test_a_block_has_the_output_directly_below():
    first = "```python\nprint(1)\n```\n\n```text\n1\n```\n\n"
    text = f"# A\n\n{first}```python\n2\n```\n\nor\n\n```text\n3\n```\n"
    assert blocks(text) == [Block(3, "print(1)\n", "1\n"), Block(11, "2\n", None)]


def test_every_page_but_the_index_is_on_one_list_of_contents():
    index = (ROOT / "docs/index.md").read_text(encoding="utf-8")
    listed = re.findall(r"^[\w/]+$", index, re.MULTILINE)
    pages = [str(path.relative_to(ROOT / "docs").with_suffix("")) for path in PAGES[1:]]
    assert sorted(listed) == sorted(name for name in pages if name != "index")
