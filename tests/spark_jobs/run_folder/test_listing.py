"""The files below a folder, and those that links among its checkpoints lead to."""

from __future__ import annotations

from spark_jobs.run_folder.listing import files_below


def test_chained_links_to_folders_multiply_no_files(tmp_path):
    steps = tmp_path / "checkpoint"
    for step in range(5):
        (steps / f"step-{step}").mkdir(parents=True)
        (steps / f"step-{step}" / "state").touch()
        if step:
            (steps / f"step-{step}" / "previous").symlink_to(f"../step-{step - 1}")
    (steps / "step-0" / "same").symlink_to("state")
    (steps / "latest").symlink_to("step-4")
    found, unlisted = files_below(tmp_path)
    assert unlisted is None
    assert found.keys() == {
        "checkpoint/latest/state",
        "checkpoint/step-0/same",
        *(f"checkpoint/step-{step}/state" for step in range(5)),
        *(f"checkpoint/step-{step}/previous/state" for step in range(1, 5)),
    }
