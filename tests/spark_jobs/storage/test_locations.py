import os
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from search.errors import InvalidArgument
from spark_jobs.storage.locations import HADOOP, Location


def normal(path):
    """The path without parts that are empty, "." or "..", as of a file of this host."""
    parts = []
    for part in path.split("/"):
        if part == "..":
            del parts[-1:]
        elif part not in ("", "."):
            parts.append(part)
    return "/" + "/".join(parts)


schemes = st.sampled_from([*HADOOP, "s3", "gs", "memory"])
hosts = st.from_regex(r"[a-z0-9][a-z0-9.-]{0,10}|\[[0-9a-f:]{2,10}\]", fullmatch=True)
ports = st.just("") | st.integers(1, 65_535).map(lambda port: f":{port}")
authorities = st.just("") | st.builds(str.__add__, hosts, ports)
characters = st.sampled_from("/.~:") | st.characters(
    exclude_categories=["Cs"], exclude_characters="\0"
)
paths = st.text(characters, max_size=20)


@given(schemes, authorities, paths)
def test_a_url_survives_its_round_trip(scheme, authority, path):
    path = f"/{path}" if scheme not in HADOOP else normal(f"/{path}")
    url = f"{scheme}://{authority}{path}"
    location = Location.parse(url)
    assert location == Location(scheme, authority, path)
    assert location.url == str(location) == url


@given(st.sampled_from(HADOOP), authorities, paths)
def test_paths_of_hdfs_lose_empty_and_dotted_parts(scheme, authority, path):
    location = Location.parse(f"{scheme}://{authority}/{path}")
    assert location == Location(scheme, authority, normal(f"/{path}"))


def test_paths_of_hdfs_are_written_in_one_way():
    for text in ("//data//a", "/data/a/", "/data/./b/../a", "/../data/a"):
        assert Location.parse(f"hdfs://nn:8020{text}").path == "/data/a"
    for text in ("", "/", "//", "/.", "/a/.."):
        assert Location.parse(f"hdfs://nn:8020{text}").path == "/"
    assert Location.parse("s3://bucket//a/../b/").path == "//a/../b/"  # a key, which may have these


@given(paths.filter(bool))
def test_the_url_of_a_location_is_read_as_the_same(text):
    try:
        location = Location.parse(text)
    except InvalidArgument:
        return
    assert Location.parse(location.url) == location


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("https://host/a.csv?sig=s3cret&se=2027", "https://host/a.csv?..."),
        ("https://host/my 'a'.csv?sig=s3 cret", "https://host/my 'a'.csv?..."),
        ("https://s3cret@host/a", "https://...@host/a"),
        ("sftp://me:s3@cret@host:22/a@b", "sftp://me:...@host:22/a@b"),
        ("s3://bucket/what?.csv", "s3://bucket/what?.csv"),
        ("hdfs://nn:8020/a://b:c@d", "hdfs://nn:8020/a:/b:c@d"),
    ],
)
def test_a_location_in_a_message_has_no_secrets(url, text):
    location = Location.parse(url)
    assert str(location) == text


def test_a_wrong_url_is_refused_without_its_password():
    with pytest.raises(InvalidArgument, match=r"got 'hdfs://me:\.\.\.@nn/data'"):
        Location.parse("hdfs://me:s3cret@nn/data")


@given(paths)
def test_a_file_url_is_the_path_in_it(path):
    location = Location.parse(f"file:///{path}")
    assert location == Location("file", "", os.path.abspath(f"/{path}"))
    assert Location.parse(str(location)) == location


def test_a_path_is_made_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/ü")
    assert Location.parse("a/../b c") == Location("file", "", f"{tmp_path}/b c")
    assert Location.parse("~/data") == Location("file", "", "/home/ü/data")
    assert Location.parse(tmp_path / "x") == Location("file", "", f"{tmp_path}/x")


def test_a_relative_path_in_a_folder_that_was_removed_is_refused(tmp_path, monkeypatch):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    expected = (
        "logdir: expected an absolute path, got 'runs', and the working directory was removed"
    )
    with pytest.raises(InvalidArgument, match=expected):
        Location.parse("runs", "logdir")
    assert Location.parse("/runs") == Location("file", "", "/runs")


def test_the_scheme_may_be_in_capitals_and_the_path_keeps_its_own():
    assert Location.parse("HDFS://nn:8020/Data") == Location("hdfs", "nn:8020", "/Data")


def test_the_path_may_be_left_out():
    assert Location.parse("hdfs://nn:8020") == Location("hdfs", "nn:8020", "/")
    assert Location.parse("memory://") == Location("memory", "", "/")


def test_percent_signs_queries_and_fragments_are_parts_of_hdfs_paths():
    assert Location.parse("hdfs://nn/a%20b?c#d").path == "/a%20b?c#d"


def test_files_of_this_host_may_be_called_those_of_localhost():
    assert Location.parse("file://localhost/a") == Location.parse("file:///a")


def test_another_path_in_the_same_store():
    location = Location.parse("hdfs://nn:8020/a")
    assert str(location.at("/b/c")) == "hdfs://nn:8020/b/c"


NO_PATHS = [None, 3, b"/a", Path, "", "a\0b", ["/a"]]
NAMED = ["s3a:/x", "abfss:/x", "wasbs:/x", "adl:/x", "S3N:/x/y", "a.b+c-1:/x", "x:/", "wasb:x"]
ALMOST = ["hdfs:/a", "hdfs:a", "HDFS:/a", "webhdfs:/nn/a", "file:/a", "s3:bucket", "gs:/bucket/a"]
BAD_AUTHORITIES = ["nn:", "nn:x", "nn:802000", "nn:1:2", ":8020", "me@nn", "a b", "[::1", "::1"]


def refusal(text):
    with pytest.raises(InvalidArgument) as caught:
        Location.parse(text)
    message = str(caught.value)
    assert message.startswith("path: expected ")
    assert "\n" not in message
    return message


@pytest.mark.parametrize("value", NO_PATHS, ids=repr)
def test_an_invalid_path_is_refused_with_an_example(value):
    assert "a path or a URL such as hdfs://host:8020/data, got " in refusal(value)


@pytest.mark.parametrize("text", [*ALMOST, *NAMED])
def test_a_url_with_a_slash_too_few_is_not_taken_for_a_path(text):
    assert f"got {text!r}; a URL has two slashes" in refusal(text)


@given(st.from_regex(r"[A-Za-z][A-Za-z0-9+.-]*:/", fullmatch=True), paths)
def test_a_name_a_colon_and_a_slash_are_never_a_path(name, path):
    try:
        assert Location.parse(f"{name}{path}").scheme == name.removesuffix(":/").lower()
    except InvalidArgument:
        assert not path.startswith("/") or name.lower() in [f"{s}:/" for s in (*HADOOP, "file")]


def test_a_malformed_url_gets_a_hint():
    assert refusal("s3a:/x").endswith(
        "got 's3a:/x'; a URL has two slashes after its colon, and a third before the path; a path "
        "of this host is './s3a:/x'"
    )
    assert refusal("dbfs:/runs/a").endswith("'dbfs:/runs/a'; on Databricks, write '/dbfs/runs/a'")
    assert Location.parse("./s3a:/x") == Location("file", "", os.path.abspath("s3a:/x"))


def test_a_url_that_pathlib_has_spoilt_is_refused():
    assert "'hdfs:/nn/a'; a URL has two slashes" in refusal(Path("hdfs://nn/a"))


@pytest.mark.parametrize("scheme", HADOOP)
@pytest.mark.parametrize("authority", BAD_AUTHORITIES)
def test_a_cluster_is_a_host_and_a_port(scheme, authority):
    expected = re.escape(f"{scheme}://host:port/path, got '{scheme}://{authority}/a'")
    assert re.search(expected, refusal(f"{scheme}://{authority}/a"))


def test_files_of_another_host_are_refused():
    assert "file:///..., got 'file://other/a'" in refusal("file://other/a")
