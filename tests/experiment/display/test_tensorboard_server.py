import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

import psutil
import pytest

import experiment
from experiment.display.tensorboard_server import (
    TensorBoard,
    _tag_of_progress,
    pages,
    tensorboard,
)
from experiment.run_files.loading import read_manifest
from search.errors import ExperimentError, InvalidArgument
from search.grid import GridSearch
from search.sequential.regularized_evolution import RegularizedEvolution
from search.space.spaces import Space
from search.trial import Outcome
from spark_jobs.run_folder.paths import RunPaths
from spark_jobs.trial.events.event_scalars import scalars_in
from tests.experiment.results.html_reader import Reader
from tests.experiment.runs import make_run, make_spec
from tests.experiment.waiting import wait_until
from tests.search.fakes import started

SECONDS = 120  # until the test gives up
NASTY = "--a b,c:d'e\"f$g*[h]?%PORT%~<i>\x1b[2J\n\\ü"


def get(url):
    with urllib.request.urlopen(url, timeout=SECONDS) as answer:
        return answer.read()


def wait_for(url, ready):
    """Poll until the answer is ready, for a limited time."""
    end = time.monotonic() + SECONDS
    while True:
        try:
            answer = json.loads(get(url))
            if ready(answer):
                return answer
        except urllib.error.HTTPError as error:  # no data of a plugin yet
            answer = error
        assert time.monotonic() < end, answer
        time.sleep(0.1)


def servers(of=None):
    """Return the processes of all servers started by a process."""
    started = psutil.Process(of).children()
    ours = [
        process
        for process in started
        if "experiment.display.tensorboard_process" in process.cmdline()
    ]
    return [part for server in ours for part in [server, *server.children(recursive=True)]]


def assert_gone(processes):
    assert processes
    _, alive = psutil.wait_procs(processes, timeout=SECONDS)
    assert alive == []


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return make_run(tmp_path_factory.mktemp("run"))


@pytest.fixture(scope="module")
def board(run):
    with tensorboard(run) as board:
        yield board


@pytest.fixture
def display(monkeypatch):
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)


def test_the_address_answers_with_the_data_of_the_run(board, run):
    names = {"search", *(f"trials/{number:06d}" for number in range(6))}
    wait_for(f"{board.url}/data/runs", lambda runs: set(runs) == names)
    assert json.loads(get(f"{board.url}/data/logdir")) == {"logdir": str(run)}
    assert b"<!doctype html>" in get(f"{board.url}/")


def test_the_page_of_the_search_has_only_the_search(board):
    search = urllib.parse.urlsplit(board.pages["search: curves"]).path
    assert search == "/search/"
    wait_for(f"{board.url}{search}data/runs", lambda runs: runs == ["search"])
    assert b"<!doctype html>" in get(f"{board.url}{search}")


def check_pinned(board, kind):
    """Check that a curve is pinned on the page of the search, and exists."""
    url = urllib.parse.urlsplit(board.pages["search: curves"])
    query = urllib.parse.parse_qs(url.query)
    [card] = json.loads(query["pinnedCards"][0])
    tags = f"{board.url}{url.path}data/plugin/scalars/tags"
    wait_for(tags, lambda tags: card["tag"] in tags.get("search", ()))
    assert (card["plugin"], url.fragment) == ("scalars", "timeseries")
    assert card["tag"].startswith(kind)


def test_the_curve_pinned_on_the_page_of_the_search_exists(board, tmp_path):
    check_pinned(board, "search")
    with tensorboard(make_run(tmp_path, generations=True, trials=8)) as of_generations:
        check_pinned(of_generations, "generation")


def test_the_server_needs_no_tensorflow_for_any_page(board):
    wait_for(f"{board.url}/data/runs", lambda runs: "search" in runs)
    for plugin in ("scalars/tags", "text/tags", "text/text?run=search&tag=about"):
        get(f"{board.url}/data/plugin/{plugin}")
    for plugin in ("histograms/tags", "distributions/tags", "custom_scalars/layout"):
        get(f"{board.url}/data/plugin/{plugin}")
    for process in servers():
        maps = Path(f"/proc/{process.pid}/maps").read_text()
        assert "python" in maps or "tensorboard" in maps
        assert "tensorflow" not in maps.lower()


@pytest.mark.parametrize("page", ["", "/search"])
def test_the_plugin_that_reads_any_file_is_left_out(board, page):
    """The projector: up to TensorBoard 2.20 it reads whatever file a run names."""
    listed = json.loads(get(f"{board.url}{page}/data/plugins_listing"))
    assert {"scalars", "timeseries", "text", "histograms"} <= listed.keys()
    assert "projector" not in listed


def test_it_listens_on_the_loopback_address_only(board):
    sockets = [s for process in servers() for s in process.net_connections("inet")]
    listening = {s.laddr for s in sockets if s.status == psutil.CONN_LISTEN}
    assert ("127.0.0.1", int(board.url.rpartition(":")[2])) in listening
    assert {address.ip for address in listening} == {"127.0.0.1"}


def test_no_process_of_a_server_prints_into_a_pipe_that_nobody_reads(board):
    def outputs():
        processes = [f"/proc/{process.pid}/fd" for process in servers()]
        return {os.readlink(f"{folder}/{number}") for folder in processes for number in (1, 2)}

    wait_until(lambda: outputs() == {os.devnull})  # that of the server itself, after its address


def test_the_address_and_the_pages_are_printed_and_an_error_in_the_block_ends_the_server(
    run, capsys, display
):
    with pytest.raises(KeyError):
        with experiment.tensorboard(str(run)) as board:
            assert capsys.readouterr().out == f"{board}\n"
            raise KeyError
    first, *rest = str(board).splitlines()
    assert first == f"TensorBoard: {board.url}"
    assert rest == [f"  {title}: {address}" for title, address in board.pages.items()]
    with pytest.raises(urllib.error.URLError, match="refused"):
        get(board.url)


def test_a_result_can_be_given_and_a_second_server_has_another_address(board, run):
    with tensorboard(experiment.load(run)) as other:
        assert json.loads(get(f"{other.url}/data/logdir")) == {"logdir": str(run)}
        assert other.url != board.url


@pytest.mark.slow
@pytest.mark.contract
def test_all_trials_are_there_where_a_shell_allows_fewer_open_files(tmp_path):
    run = make_run(tmp_path, trials=150, failed=())
    trials = (run / "trials").rename(tmp_path / "trials")
    command = [sys.executable, "-m", "experiment", "tensorboard", str(run)]
    with subprocess.Popen(
        ["sh", "-c", 'ulimit -S -n 100; exec "$@"', "sh", *command],
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            url = process.stdout.readline().removeprefix("TensorBoard: ").strip()
            wait_for(f"{url}/data/runs", lambda runs: runs == ["search"])
            # Earlier, the data server would not start, and TensorBoard read the files without it.
            trials.rename(run / "trials")
            names = {"search", *(f"trials/{number:06d}" for number in range(150))}
            wait_for(f"{url}/data/plugin/scalars/tags", lambda tags: tags.keys() == names)
        finally:
            process.kill()


def test_a_run_in_progress_is_read_as_it_grows(tmp_path):
    run = make_run(tmp_path, running=(3,), ended=False)
    with tensorboard(run) as board:
        wait_for(f"{board.url}/data/runs", lambda runs: "trials/000003" in runs)
        other = make_run(tmp_path / "other")
        (other / "trials" / "000005").rename(run / "trials" / "000006")
        wait_for(f"{board.url}/data/runs", lambda runs: "trials/000006" in runs)


@pytest.mark.slow
@pytest.mark.contract
def test_a_new_run_is_read_as_soon_as_it_has_events(tmp_path):
    run = make_run(tmp_path)
    (run / "search").rename(tmp_path / "search")
    with tensorboard(run) as board:
        assert json.loads(get(f"{board.url}/search/data/runs")) == []
        (tmp_path / "search").rename(run / "search")
        wait_for(f"{board.url}/search/data/runs", lambda runs: runs == ["search"])


@pytest.mark.slow
@pytest.mark.contract
def test_a_folder_of_runs_is_opened_as_one_and_grows(tmp_path):
    logdir = tmp_path / "runs"
    first, second = make_run(logdir, trials=2), make_run(logdir, trials=2)

    def names(*runs):
        parts = ("search", "trials/000000", "trials/000001")
        return {f"{run.name}/{part}" for run in runs for part in parts}

    with tensorboard(logdir) as board:
        data, searches = f"{board.url}/data/runs", f"{board.url}/search/data/runs"
        wait_for(data, lambda runs: set(runs) == names(first, second))
        wait_for(searches, lambda runs: set(runs) == {first.name, second.name})
        third = make_run(logdir, trials=2)
        wait_for(data, lambda runs: names(third) <= set(runs))
        wait_for(searches, lambda runs: third.name in runs)
        assert "trials" in board.pages


def test_the_table_of_several_runs_has_the_columns_of_all(tmp_path):
    def run_of(space, objective):
        def outcome_of(trial):
            return Outcome(trial.id, "finished", 0.5, objective, {objective: 0.5}, seconds=2.5)

        space = Space.of_grid(space)
        search = make_spec("launch", GridSearch(space), space)
        make_run(tmp_path, search=search, outcome_of=outcome_of, optimization_key=objective)

    def has_all(received):
        columns = {c["name"]: c.get("domainDiscrete") for c in received.get("hparamInfos", [])}
        metrics = {metric["displayName"] for metric in received.get("metricInfos", [])}
        wanted = {"rate": None, "units": [8.0], "kind": ["a"]}
        return columns == wanted and metrics == {"accuracy ↑", "loss ↑"}

    run_of({"rate": [0.1, 0.2], "units": [8]}, "accuracy")
    run_of({"rate": [0.3], "units": [8], "kind": ["a"]}, "loss")
    with tensorboard(tmp_path) as board:
        page, kind = "data/plugin/hparams/experiment", {"Content-Type": "application/json"}
        # TensorBoard lists runs before it has read them, and has no table before the first.
        wait_for(urllib.request.Request(f"{board.url}/{page}", b"{}", kind), has_all)


@pytest.mark.parametrize("page", ["", "/search"])
def test_the_browsers_window_has_the_name_of_the_run(board, run, page):
    received = json.loads(get(f"{board.url}{page}/data/environment"))
    assert received["window_title"] == run.name


def test_close_ends_the_server_and_may_be_called_twice(run):
    before = servers()
    board = tensorboard(run)
    started = [process for process in servers() if process not in before]
    board.close()
    board.close()
    assert_gone(started)
    with pytest.raises(urllib.error.URLError, match="refused"):
        get(board.url)


def test_a_server_leaves_no_file_behind_and_writes_nothing_into_the_run(tmp_path, monkeypatch):
    run, temporary = make_run(tmp_path), tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    before = {path: path.lstat().st_mtime_ns for path in run.rglob("*")}
    with tensorboard(run) as board:
        get(board.url)
        wait_for(f"{board.url}/data/runs", lambda runs: "search" in runs)
    assert list(temporary.iterdir()) == []
    assert {path: path.lstat().st_mtime_ns for path in run.rglob("*")} == before


def test_wait_returns_when_the_server_has_ended(run):
    before = servers()
    with tensorboard(run) as board:
        for process in servers():
            if process not in before:
                with contextlib.suppress(psutil.NoSuchProcess):  # its data server ends with it
                    process.kill()
        assert board.wait() == -signal.SIGKILL


FORKS = """
import os, sys, urllib.request
import experiment

(ended, end), (closed, close) = os.pipe(), os.pipe()
board = experiment.tensorboard(sys.argv[1])
child = os.fork()
if not child:  # such as one of multiprocessing
    os.close(end)
    board.close()  # as at its exit
    os.close(close)
    os.read(ended, 1)
    os._exit(0)
os.close(close)
os.read(closed, 1)
urllib.request.urlopen(board.url).close()
board.close()
print(board.wait(), os.listdir(os.environ["TMPDIR"]))
os.close(end)
os.waitpid(child, 0)
"""


def test_a_process_that_was_forked_meanwhile_neither_ends_the_server_nor_keeps_it(run, tmp_path):
    """It has the other end of the server's pipe, too."""
    ran = subprocess.run(
        [sys.executable, "-c", FORKS, str(run)],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        text=True,
        timeout=SECONDS,
        check=True,
    )
    assert ran.stdout.splitlines()[-1] == "0 []"


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_folder_is_found_whatever_encoding_is_set(tmp_path, monkeypatch, encoding):
    (tmp_path / "é").mkdir()
    monkeypatch.setenv("PYTHONIOENCODING", encoding)
    with tensorboard(make_run(tmp_path / "é")) as board:
        wait_for(f"{board.url}/data/runs", lambda runs: "search" in runs)


def test_a_server_that_prints_much_while_it_starts_is_no_hang(run, monkeypatch):
    monkeypatch.setenv("PYTHONPROFILEIMPORTTIME", "1")
    with tensorboard(run) as board:
        get(board.url)


PROGRAM = """
import os, signal, sys, urllib.request
import experiment

signal.signal(signal.SIGINT, lambda number, frame: None)
board = experiment.tensorboard(sys.argv[1])
if len(sys.argv) > 2 and not os.fork():
    sys.stdin.read()
    os._exit(0)
print("started", flush=True)
sys.stdin.readline()
with urllib.request.urlopen(board.url) as answer:
    print(answer.status, flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def starter(run, request):
    """A process that has started a server, with a process group of its own."""
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(run), *getattr(request, "param", [])],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        while process.stdout.readline() != "started\n":
            assert process.poll() is None
        yield process
        process.kill()


def test_the_end_of_the_process_ends_the_server(starter):
    started = servers(starter.pid)
    starter.communicate("\n\n", timeout=SECONDS)
    assert starter.returncode == 0
    assert_gone(started)


def check_ended_by(starter, number):
    started = servers(starter.pid)
    starter.send_signal(number)
    assert starter.wait(SECONDS) == -number
    assert_gone(started)


@pytest.mark.parametrize("starter", [[], ["forks"]], indirect=True)
def test_the_kill_of_the_process_ends_the_server(starter):
    check_ended_by(starter, signal.SIGKILL)


def test_ctrl_c_does_not_end_the_server_while_the_process_lives_but_sigterm_ends_both(starter):
    assert all(os.getpgid(process.pid) != starter.pid for process in servers(starter.pid))
    os.killpg(starter.pid, signal.SIGINT)
    starter.stdin.write("\n")
    starter.stdin.flush()
    assert starter.stdout.readline() == "200\n"
    assert len(servers(starter.pid)) >= 1
    check_ended_by(starter, signal.SIGTERM)


@pytest.mark.parametrize("folder", ["", ".", "missing", "file", "hdfs://host/run", None, 7])
def test_a_folder_without_a_run_is_refused_without_a_process(tmp_path, monkeypatch, capfd, folder):
    (tmp_path / "file").touch()
    monkeypatch.chdir(tmp_path)
    before = psutil.Process().children()
    with pytest.raises(InvalidArgument, match="run: expected the folder of a run"):
        tensorboard(folder)
    assert psutil.Process().children() == before
    assert capfd.readouterr() == ("", "")


def test_a_manifest_that_cannot_be_used_is_refused_without_a_process(tmp_path):
    run = make_run(tmp_path)
    (run / "manifest.json").write_text("{}")
    before = psutil.Process().children()
    with pytest.raises(InvalidArgument, match=r"manifest\.json cannot be used"):
        tensorboard(run)
    assert psutil.Process().children() == before


@pytest.mark.parametrize(
    "text", ["raise RuntimeError('no such plugin')", "import os; os.write(2, b'no such plugin')\nx"]
)
def test_a_server_that_cannot_start_is_one_error_with_its_output(
    run, tmp_path, monkeypatch, capfd, text
):
    package = tmp_path / "tensorboard"
    package.mkdir()
    (package / "__init__.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    before = psutil.Process().children()
    with pytest.raises(ExperimentError, match="TensorBoard did not start: ") as caught:
        tensorboard(run)
    assert "no such plugin" in str(caught.value)
    assert psutil.Process().children() == before
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("variables", "wanted"),
    [
        ({}, True),
        ({"DISPLAY": ""}, True),
        ({"DISPLAY": ":0"}, False),
        ({"WAYLAND_DISPLAY": "wayland-0"}, False),
    ],
    ids=str,
)
def test_without_a_display_the_ssh_command_is_shown(board, monkeypatch, variables, wanted):
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    port = board.url.rpartition(":")[2]
    line = f"ssh -L {port}:127.0.0.1:{port} {socket.gethostname()}"
    assert (line in str(board)) is wanted
    assert ("ssh" in str(board)) is wanted


def addresses(html):
    """Return the address of the frame, and of each link by its title."""
    reader = Reader(html)
    frame = [value for name, value in reader.attributes if name == "src"]
    links = [value for name, value in reader.attributes if name == "href"]
    assert set(reader.tags) == {"div", "a", "iframe"}
    return frame, dict(zip(Reader(html, "a").inside, links, strict=True))


def test_a_notebook_shows_the_tab_and_links_to_the_other_pages(board, monkeypatch):
    monkeypatch.delenv("TENSORBOARD_PROXY_URL", raising=False)
    frame, links = addresses(board._repr_html_())
    assert frame == [board.pages["experiment"]] == [f"{board.url}/#experiment"]
    assert links == board.pages


def test_the_tab_in_a_notebook_may_copy(board):
    assert ("allow", "clipboard-write") in Reader(board._repr_html_()).attributes


@pytest.mark.parametrize("proxy", ["/proxy/%PORT%/", "/proxy/%PORT%"])
def test_behind_a_notebooks_proxy_its_addresses_are_used(board, monkeypatch, proxy):
    monkeypatch.setenv("TENSORBOARD_PROXY_URL", proxy)
    port = board.url.rpartition(":")[2]
    frame, links = addresses(board._repr_html_())
    assert frame == [f"/proxy/{port}/#experiment"]
    assert all(link.startswith(f"/proxy/{port}/") for link in links.values())
    assert board.pages["trials"].startswith("http://127.0.0.1:")


def test_a_proxys_address_stays_inside_its_attribute(board, monkeypatch):
    proxy = '/"><script>alert(1)</script>'
    monkeypatch.setenv("TENSORBOARD_PROXY_URL", proxy)
    frame, _ = addresses(board._repr_html_())
    assert frame == [f"{proxy}/#experiment"]


@pytest.mark.parametrize("name", [NASTY, "~"], ids=ascii)
def test_a_folder_may_have_any_name(tmp_path, capsys, name):
    run = make_run(tmp_path)
    run = run.rename(tmp_path / name)
    with tensorboard(run) as board:
        wait_for(f"{board.url}/data/runs", lambda runs: "trials/000000" in runs)
        assert capsys.readouterr().out.replace("\n", "").isprintable()
        addresses(board._repr_html_())


def aging():
    space = Space.of_bounds({"learning_rate": [0.01, 0.1]})
    search = started(RegularizedEvolution, space, 7, samples=8)
    return make_spec("run", search, space, algorithm=RegularizedEvolution().to_json())


@pytest.mark.parametrize(
    ("run", "tag"),
    [
        ({"generations": True}, "generation/best"),
        ({}, "search/best_so_far"),
        ({"search": aging()}, "search/best_so_far"),
        ({"direction": {"accuracy": "max", "loss": "min"}}, "search/front"),
    ],
    ids=["generations", "grid", "aging", "front"],
)
def test_a_curve_that_the_search_has_is_pinned(tmp_path, run, tag):
    paths = RunPaths(make_run(tmp_path, trials=8, failed=(), **run))
    assert _tag_of_progress(read_manifest(paths)) == tag
    files = paths.search.glob("events*")
    assert tag in {point.tag for file in files for point in scalars_in(file.read_bytes())}


def test_filters_come_before_the_fragment_and_are_quoted():
    for path in pages("search/best_so_far").values():
        url = urllib.parse.urlsplit(path)
        assert url.path in ("/", "/search/")
        assert url.fragment
        assert not set("<>\" '") & set(path)


def test_a_server_is_a_context_manager_of_its_own_type(board):
    assert isinstance(board, TensorBoard)
    assert isinstance(board, experiment.TensorBoard)
    with pytest.raises(TypeError):
        json.dumps(board)
