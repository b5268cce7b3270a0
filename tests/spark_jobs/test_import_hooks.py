import sys

from spark_jobs.import_hooks import when_imported


def module_named(name, folder, monkeypatch):
    (folder / f"{name}.py").write_text("")
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, name, raising=False)


def test_the_hook_runs_at_once_for_an_imported_module():
    seen = []
    with when_imported("sys", seen.append):
        assert seen == [sys]


def test_the_hook_runs_when_the_block_imports_the_module(tmp_path, monkeypatch):
    module_named("imported_late", tmp_path, monkeypatch)
    seen = []
    with when_imported("imported_late", seen.append):
        assert seen == []
        import imported_late
    assert seen == [imported_late]


def test_the_hook_does_not_run_after_the_block(tmp_path, monkeypatch):
    module_named("imported_later", tmp_path, monkeypatch)
    seen = []
    with when_imported("imported_later", seen.append):
        pass
    import imported_later

    assert imported_later
    assert seen == []
