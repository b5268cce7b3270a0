import getpass

import msgspec
import pytest

from search.errors import InvalidArgument
from spark_jobs.session import active_data_settings
from spark_jobs.storage.hadoop_settings import EXACT, PREFIXES, HadoopSettings
from spark_jobs.storage.locations import Location

HA = {
    "fs.defaultFS": "hdfs://ours",
    "dfs.nameservices": "ours, theirs",
    "dfs.ha.namenodes.ours": "nn1, nn2",
    "dfs.namenode.rpc-address.ours.nn1": "a:8020",
    "dfs.namenode.rpc-address.ours.nn2": "b:8020",
    "dfs.namenode.http-address.ours.nn1": "a:50070",
    "dfs.namenode.http-address.ours.nn2": "0.0.0.0:50071",
    "dfs.ha.namenodes.theirs": "x",
    "dfs.namenode.rpc-address.theirs.x": "c:8020",
}


def addresses(url, values=None):
    return HadoopSettings(values or {}).namenodes(Location.parse(url))


def refusal(url, values=None):
    with pytest.raises(InvalidArgument) as caught:
        addresses(url, values)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def single(default="hdfs://nn:8020", **settings):
    names = {f"dfs.namenode.{name.replace('_', '-')}": value for name, value in settings.items()}
    return {"fs.defaultFS": default, **names}


@pytest.mark.parametrize("url", ["hdfs://nn:8020/a", "hdfs://nn/a"])
def test_without_a_configuration_it_is_the_usual_port_of_the_same_host(url):
    assert addresses(url) == ("http://nn:9870",)


def test_a_service_whose_namenodes_have_one_address_has_it_once():
    """With one twice, the package `hdfs` would look for another one for ever."""
    values = HA | {"dfs.namenode.http-address.ours.nn2": "a:50070"}
    assert addresses("hdfs://ours/a", values) == ("http://a:50070",)


def test_a_url_without_an_address_means_the_default_file_system():
    assert addresses("hdfs:///a", single()) == ("http://nn:9870",)
    assert addresses("hdfs:///a", single(http_address="web:50070")) == ("http://web:50070",)


SAME = ["hdfs://nn:8020/a", "hdfs://nn/a", "hdfs://NN:8020/a"]


@pytest.mark.parametrize("url", SAME)
@pytest.mark.parametrize("default", ["hdfs://nn:8020", "hdfs://nn:8020/", "hdfs://nn"])
def test_the_default_file_system_may_be_named(url, default):
    assert addresses(url, single(default, http_address="nn:50070")) == ("http://nn:50070",)


def test_the_cluster_of_the_rpc_address_is_the_configured_one_too():
    values = single("file:///", rpc_address="nn:8020", http_address="nn:50070")
    assert addresses("hdfs://nn:8020/a", values) == ("http://nn:50070",)


@pytest.mark.parametrize("url", ["hdfs://other:8020/a", "hdfs://nn:8021/a"])
def test_the_configured_address_is_not_that_of_other_clusters(url):
    host = Location.parse(url).authority.partition(":")[0]
    assert addresses(url, single(http_address="nn:50070")) == (f"http://{host}:9870",)


@pytest.mark.parametrize("everywhere", ["0.0.0.0:50070", "[::]:50070", ":50070"])
def test_a_namenode_that_listens_everywhere_is_asked_at_its_own_host(everywhere):
    assert addresses("hdfs:///a", single(http_address=everywhere)) == ("http://nn:50070",)


def test_the_port_may_be_missing_from_the_configured_address():
    assert addresses("hdfs:///a", single(http_address="web")) == ("http://web:9870",)


def test_a_cluster_with_https_only_is_asked_over_https():
    values = single(http_address="nn:50070", https_address="nn:50470")
    values["dfs.http.policy"] = "HTTPS_ONLY"
    assert addresses("hdfs:///a", values) == ("https://nn:50470",)
    assert addresses("hdfs://other/a", values) == ("https://other:9871",)


@pytest.mark.parametrize("policy", ["HTTP_ONLY", "HTTP_AND_HTTPS"])
def test_a_cluster_with_http_is_asked_over_http(policy):
    values = single(http_address="nn:50070", https_address="nn:50470")
    assert addresses("hdfs:///a", {**values, "dfs.http.policy": policy}) == ("http://nn:50070",)


def test_ipv6_addresses_keep_their_brackets():
    assert addresses("hdfs://[2001:db8::1]:8020/a") == ("http://[2001:db8::1]:9870",)
    values = single("hdfs://[::1]:8020", http_address="[::1]:50070")
    assert addresses("hdfs:///a", values) == ("http://[::1]:50070",)
    assert addresses("webhdfs://[::1]/a") == ("http://[::1]:9870",)


@pytest.mark.parametrize("url", ["hdfs:///a", "hdfs://ours/a"])
def test_a_name_service_has_all_its_namenodes_in_their_order(url):
    assert addresses(url, HA) == ("http://a:50070", "http://b:50071")


def test_a_second_name_service_has_its_own_namenodes():
    assert addresses("hdfs://theirs/a", HA) == ("http://c:9870",)


def test_a_name_service_with_https_only_is_asked_over_https():
    values = {**HA, "dfs.http.policy": "HTTPS_ONLY"}
    values["dfs.namenode.https-address.ours.nn1"] = "a:50470"
    assert addresses("hdfs://ours/a", values) == ("https://a:50470", "https://b:9871")


def test_a_name_service_may_have_one_namenode_without_a_name():
    values = {"dfs.nameservices": "one", "dfs.namenode.rpc-address.one": "nn:8020"}
    assert addresses("hdfs://one/a", values) == ("http://nn:9870",)


def test_a_host_beside_name_services_is_a_host():
    assert addresses("hdfs://other:8020/x", HA) == ("http://other:9870",)


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("hdfs://a:8020/x", "http://a:50070"),
        ("hdfs://A/x", "http://a:50070"),
        ("hdfs://b:8020/x", "http://b:50071"),
        ("hdfs://c:8020/x", "http://c:9870"),
    ],
)
def test_one_name_node_of_a_service_has_its_own_web_address_and_the_services_token(url, address):
    settings = HadoopSettings(HA, tokens={"ours": "token", "elsewhere:8020": "other"})
    assert [each.lower() for each in settings.namenodes(Location.parse(url))] == [address]
    assert settings.token(Location.parse(url)) == ("" if url.startswith("hdfs://c") else "token")


def test_the_default_name_node_may_be_configured_as_a_service():
    default = {"fs.defaultFS": "hdfs://c:8020", "dfs.namenode.http-address.theirs.x": "c:50072"}
    for url in ("hdfs:///x", "hdfs://c/x", "hdfs://theirs/x"):
        assert addresses(url, HA | default) == ("http://c:50072",)


@pytest.mark.parametrize("policy", ["HTTP_ONLY", "HTTP_AND_HTTPS", "HTTPS_ONLY", ""])
def test_the_scheme_of_a_url_of_webhdfs_is_its_protocol_for_a_service_too(policy):
    ports = {"dfs.namenode.https-address.ours.nn1": "a:50470", "dfs.http.policy": policy}
    settings = HadoopSettings(HA | ports, tokens={"ours": "token"})
    for url, found in {
        "swebhdfs://ours/x": ("https://a:50470", "https://b:9871"),
        "swebhdfs://a:50470/x": ("https://a:50470",),
        "webhdfs://ours/x": ("http://a:50070", "http://b:50071"),
        "webhdfs://b:50071/x": ("http://b:50071",),
    }.items():
        assert settings.namenodes(Location.parse(url)) == found
        assert settings.token(Location.parse(url)) == "token"


def test_an_address_of_webhdfs_is_not_changed():
    configured = single(http_address="nn:50070")
    assert addresses("webhdfs://nn:14000/a", configured) == ("http://nn:14000",)
    assert addresses("swebhdfs://nn:14000/a", configured) == ("https://nn:14000",)


def test_an_address_of_webhdfs_without_a_port_has_the_usual_one():
    assert addresses("webhdfs://nn/a") == ("http://nn:9870",)
    assert addresses("swebhdfs://nn/a") == ("https://nn:9871",)


@pytest.mark.parametrize("default", [None, "file:///", "s3a://bucket", "hdfs:///", "viewfs://x"])
def test_no_address_and_no_default_is_refused_in_one_sentence(default):
    message = refusal("hdfs:///a", {} if default is None else {"fs.defaultFS": default})
    assert message.startswith("path: expected hdfs://host:8020/path, ")
    assert message.endswith(f"got 'hdfs:///a', and fs.defaultFS is {default or 'nothing'}")


@pytest.mark.parametrize(("scheme", "port"), [("webhdfs", 9870), ("swebhdfs", 9871)])
def test_webhdfs_without_an_address_is_refused_in_one_sentence(scheme, port):
    assert refusal(f"{scheme}:///a", HA) == (
        f"path: expected {scheme}://host:{port}/path, got {scheme}:///a"
    )


@pytest.mark.parametrize("listens", [None, "0.0.0.0:9870", "[::]:9870"])
def test_a_namenode_of_a_service_without_an_address_is_named(listens):
    values = {name: value for name, value in HA.items() if not name.endswith(".nn2")}
    if listens is not None:
        values["dfs.namenode.http-address.ours.nn2"] = listens
    message = refusal("hdfs://ours/a", values)
    assert message.startswith("dfs.namenode.rpc-address.ours.nn2: expected the address of a Name")
    assert "'ours'" in message


def test_a_name_service_without_any_setting_is_refused_in_one_sentence():
    assert "dfs.namenode.rpc-address.ns: " in refusal("hdfs://ns/a", {"dfs.nameservices": "ns"})


def test_all_settings_that_are_read_are_sent_to_executors():
    assert all(name in EXACT or name.startswith(PREFIXES) for name in HA)


def test_settings_survive_their_round_trip():
    settings = HadoopSettings(HA, "ü")
    assert msgspec.json.decode(msgspec.json.encode(settings), type=HadoopSettings) == settings


TOKEN = "HAAFYWxpY2UFYWxpY2UAigGaPw"


def token(url, tokens, values=None):
    return HadoopSettings(values or {}, "alice", tokens).token(Location.parse(url))


@pytest.mark.parametrize("url", [*SAME, "hdfs:///a", "webhdfs://nn:50070/a"])
def test_a_token_is_found_however_its_cluster_is_named(url):
    values = single(http_address="nn:50070")
    assert token(url, {"nn:8020": TOKEN}, values) == TOKEN


@pytest.mark.parametrize("url", ["hdfs://ours/a", "hdfs:///a", "webhdfs://b:50071/a"])
def test_a_name_service_has_one_token_for_all_its_namenodes(url):
    assert token(url, {"theirs": "other", "ours": TOKEN}, HA) == TOKEN


def test_other_clusters_get_no_token():
    assert token("hdfs://other:8020/a", {"nn:8020": TOKEN}, single()) == ""
    assert token("hdfs://other:8020/a", {}, single()) == ""
    values = {"dfs.nameservices": "lost", "dfs.ha.namenodes.lost": "a"}
    assert token("hdfs://other:8020/a", {"lost": TOKEN}, values) == ""


def test_tokens_are_sent_and_not_shown():
    settings = HadoopSettings(HA, "alice", {"ours": TOKEN})
    assert msgspec.json.decode(msgspec.json.encode(settings), type=HadoopSettings) == settings
    assert TOKEN not in f"{settings!r} {settings}"
    assert "alice" in repr(settings)


def test_the_default_cluster_and_all_name_services_are_known():
    assert HadoopSettings(HA).authorities() == ["ours", "theirs"]
    assert HadoopSettings(single()).authorities() == ["nn:8020"]
    assert HadoopSettings(single("s3a://bucket")).authorities() == []
    more = "hdfs://nn:8020/a, hdfs://far:8020 ,s3a://bucket,,hdfs://ours"
    assert HadoopSettings(HA).authorities(more) == ["ours", "theirs", "nn:8020", "far:8020"]


@pytest.mark.parametrize(
    ("value", "secured"), [("kerberos", True), ("KERBEROS", True), ("simple", False)]
)
def test_whether_a_cluster_is_secured(value, secured):
    assert HadoopSettings({"hadoop.security.authentication": value}).is_secured == secured
    assert not HadoopSettings().is_secured


def write(folder, name, **properties):
    entries = "".join(
        f"<property><name>{name.replace('_', '.')}</name><value>{value}</value></property>"
        for name, value in properties.items()
    )
    (folder / name).write_text(f"<?xml version='1.0'?><configuration>{entries}</configuration>")


@pytest.fixture
def configured(tmp_path, monkeypatch):
    """The folder of Hadoop's configuration."""
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    return tmp_path


def test_both_files_of_the_configuration_are_read(configured):
    write(configured, "core-site.xml", fs_defaultFS="hdfs://ours", io_file="4096")
    write(configured, "hdfs-site.xml", dfs_nameservices=" ours\n", dfs_ha_namenodes_ours="nn1")
    assert HadoopSettings.of_files().values == {
        "fs.defaultFS": "hdfs://ours",
        "dfs.nameservices": "ours",
        "dfs.ha.namenodes.ours": "nn1",
    }


def test_a_value_may_name_another_property(configured):
    write(configured, "core-site.xml", fs_defaultFS="hdfs://${host}:${port}", host="nn")
    assert HadoopSettings.of_files().values == {"fs.defaultFS": "hdfs://nn:${port}"}


def test_a_property_that_a_value_names_may_name_another_one(configured):
    write(configured, "core-site.xml", fs_defaultFS="hdfs://${nn}", nn="${host}.net", host="a")
    assert HadoopSettings.of_files().values == {"fs.defaultFS": "hdfs://a.net"}


@pytest.mark.parametrize("value", ["${fs.defaultFS}", "x${fs.defaultFS}"])
def test_a_property_that_names_itself_has_an_end(value):
    found = HadoopSettings.of_client({"fs.defaultFS": value}).values["fs.defaultFS"]
    assert found.endswith("${fs.defaultFS}")


def test_settings_of_a_client_are_trimmed():
    found = HadoopSettings.of_client({"fs.defaultFS": "\n  hdfs://nn:8020\n"}).values
    assert found == {"fs.defaultFS": "hdfs://nn:8020"}


def test_missing_files_are_an_empty_configuration(configured, monkeypatch):
    assert HadoopSettings.of_files().values == {}
    monkeypatch.setenv("HADOOP_CONF_DIR", str(configured / "missing"))
    assert HadoopSettings.of_files().values == {}


@pytest.mark.usefixtures("configured")
def test_the_user_is_that_of_hadoop_or_of_the_system(monkeypatch):
    monkeypatch.delenv("HADOOP_USER_NAME", raising=False)
    assert HadoopSettings.of_files().user == getpass.getuser()
    monkeypatch.setenv("HADOOP_USER_NAME", "alice")
    assert HadoopSettings.of_files().user == "alice"


@pytest.mark.usefixtures("configured")
@pytest.mark.parametrize("error", [KeyError("uid not found"), OSError("no name")])
def test_a_user_without_a_name_has_none(monkeypatch, error):
    def fail():
        raise error

    monkeypatch.delenv("HADOOP_USER_NAME", raising=False)
    monkeypatch.setattr(getpass, "getuser", fail)
    assert HadoopSettings.of_files().user == ""


HOSTILE = """<!DOCTYPE c [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]>
<configuration><property><name>fs.defaultFS</name><value>&b;</value></property></configuration>"""
OUTSIDE = (
    """<!DOCTYPE c [<!ENTITY a SYSTEM "file:///etc/passwd">]><configuration>&a;</configuration>"""
)


@pytest.mark.parametrize(
    ("text", "got"),
    [
        ("<configuration>", "no element found"),
        ("", "no element found"),
        ("<other/>", "<other>"),
        (HOSTILE, "a document type"),
        (OUTSIDE, "a document type"),
    ],
)
def test_an_invalid_configuration_is_refused_in_one_sentence(configured, text, got):
    (configured / "hdfs-site.xml").write_text(text)
    with pytest.raises(InvalidArgument) as caught:
        HadoopSettings.of_files()
    message = str(caught.value)
    assert message.startswith(f"{configured}/hdfs-site.xml: expected a Hadoop configuration")
    assert got in message
    assert "\n" not in message


def test_a_process_without_spark_has_the_settings_of_the_files(tmp_path, monkeypatch):
    write(tmp_path, "core-site.xml", fs_defaultFS="hdfs://nn:8020")
    monkeypatch.setattr("sys.modules", {})
    monkeypatch.setenv("HADOOP_USER_NAME", "alice")
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    assert active_data_settings().hadoop == HadoopSettings(
        {"fs.defaultFS": "hdfs://nn:8020"}, "alice"
    )
    monkeypatch.delenv("HADOOP_CONF_DIR")
    assert active_data_settings().hadoop == HadoopSettings({}, "alice")
