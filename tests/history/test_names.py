"""Names of users are kept as the site wants them: hashed on the way in, and found again."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from history_runs import run_number

from predictor.errors import HistoryError
from predictor.site.history.settings import HistorySettings
from predictor.site.history.store import History, Merged, Where

RUN = run_number(
    1,
    ended={
        "user": "gwendolyn",
        "account": "gwendolyn-lab",
        "name": "gwendolyn-train",
        "stated": "model=resnet50 # for gwendolyn",
        "decision": "asked by gwendolyn",
        "submit_line": "sbatch /home/gwendolyn/train.sh",
        "script": "python gwendolyn.py --epochs",
        "directory": "/home/gwendolyn/project",
    },
)


def settings(tmp_path: Path, mode: str, secret: str = "s3cret of the site") -> HistorySettings:
    key = tmp_path / "site.key"
    key.unlink(missing_ok=True)
    key.touch(0o600)
    key.write_text(secret)
    return HistorySettings.model_validate({"anonymise": mode, "site_key": key})


def clear_names(directory: Path) -> list[str]:
    """Files of a directory that say the name of the user anywhere."""
    files = [path for path in directory.iterdir() if path.name.startswith("h.sqlite")]
    assert files
    return [path.name for path in files if b"gwendolyn" in path.read_bytes()]


def test_users_and_what_they_wrote_are_nowhere_in_the_file(tmp_path: Path) -> None:
    with History.open(
        str(tmp_path / "h.sqlite"), settings=settings(tmp_path, "users-and-names")
    ) as history:
        history.add([RUN])
        assert clear_names(tmp_path) == []
    assert clear_names(tmp_path) == []


def test_without_it_they_are(tmp_path: Path) -> None:
    with History.open(str(tmp_path / "h.sqlite")) as history:
        history.add([RUN])
    assert clear_names(tmp_path) == ["h.sqlite"]


def test_hashing_users_keeps_the_name_of_the_job(url: str, tmp_path: Path) -> None:
    with History.open(url, settings=settings(tmp_path, "users")) as history:
        history.add([RUN])
        (job,) = (run.ended for run in history.runs())
    assert re.fullmatch("user-[0-9a-f]{20}", job.user)
    assert re.fullmatch("account-[0-9a-f]{20}", job.account)
    assert (job.stated, job.decision, job.submit_line) == ("", "", "")
    assert re.fullmatch("script-[0-9a-f]{20}", job.script)
    assert re.fullmatch("directory-[0-9a-f]{20}", job.directory)
    assert (job.name, job.job_id) == (RUN.ended.name, RUN.ended.job_id)


def test_the_runs_of_a_user_are_found_by_the_clear_name_and_by_the_hash(
    url: str, tmp_path: Path
) -> None:
    with History.open(url, settings=settings(tmp_path, "users-and-names")) as history:
        history.add([RUN, run_number(2)])
        (stored,) = history.runs(Where(users=("gwendolyn",)))
        assert list(history.runs(Where(users=(stored.ended.user,)))) == [stored]
        assert list(history.runs(Where(users=("gwendolyn",), job_ids=("1001",)))) == [stored]
        assert history.frame(Where(users=("gwendolyn",))).collect().height == 1


def test_what_was_read_can_be_added_again(url: str, tmp_path: Path) -> None:
    with History.open(url, settings=settings(tmp_path, "users-and-names")) as history:
        history.add([RUN, run_number(2, ended={"job_id": "team/gwendolyn-train"})])
        assert history.add(list(history.runs())) == Merged(same=2)
        assert history.add([RUN]) == Merged(same=1)


@pytest.mark.parametrize(
    ("job_id", "kept"),
    [
        ("123", True),
        ("123_4", True),
        ("123+0", True),
        ("123.5", True),
        ("0b8f51a4-9b1b-4f6c-8d0e-5a2f3c4d5e6f", True),
        ("team/gwendolyn", False),
        ("abe", False),
    ],
)
def test_an_id_a_scheduler_made_up_is_kept_and_a_name_is_not(
    tmp_path: Path, job_id: str, kept: bool
) -> None:
    chosen = settings(tmp_path, "users-and-names")
    with History.open(str(tmp_path / "h.sqlite"), settings=chosen) as history:
        history.add([run_number(1, ended={"job_id": job_id})])
        (run,) = history.runs()
    assert (run.ended.job_id == job_id) is kept


@pytest.mark.parametrize(
    ("mode", "secret"),
    [
        ("none", "s3cret of the site"),
        ("users-and-names", "s3cret of the site"),
        ("users", "another secret of the site"),
    ],
)
def test_clear_and_hashed_names_or_two_keys_never_meet(
    url: str, tmp_path: Path, mode: str, secret: str
) -> None:
    with History.open(url, settings=settings(tmp_path, "users")) as history:
        history.add([RUN])
    with History.open(url, settings=settings(tmp_path, mode, secret)) as history:
        with pytest.raises(HistoryError, match="were kept with users by key-"):
            history.add([RUN])
        assert history.count() == 1


def test_an_empty_history_takes_another_way(url: str, tmp_path: Path) -> None:
    with History.open(url) as history:
        history.add([RUN])
        history.forget(RUN.ended.end_s + 1)
    with History.open(url, settings=settings(tmp_path, "users")) as history:
        assert history.add([RUN]) == Merged(new=1)
        assert history.status().names.startswith("users by key-")


def test_a_reader_needs_no_key(url: str, tmp_path: Path) -> None:
    chosen = settings(tmp_path, "users")
    with History.open(url, settings=chosen) as history:
        history.add([RUN])
    (tmp_path / "site.key").unlink()
    with History.open(url, settings=chosen) as history:
        assert history.count(Where(models=("resnet50",))) == 1
        with pytest.raises(HistoryError, match=r"site_key=.*site.key"):
            history.add([RUN])


@pytest.mark.parametrize(
    ("mode", "secret", "said"),
    [
        (0o644, "s3cret of the site", "mode 0644 lets others read it"),
        (0o620, "s3cret of the site", "can be written by other users"),
        (0o600, "short", "holds 5 bytes; expected 16 or more"),
    ],
)
def test_a_key_that_is_no_secret_is_refused(
    tmp_path: Path, mode: int, secret: str, said: str
) -> None:
    chosen = settings(tmp_path, "users", secret)
    (tmp_path / "site.key").chmod(mode)
    with (
        History.open(str(tmp_path / "h.sqlite"), settings=chosen) as history,
        pytest.raises(HistoryError, match=said),
    ):
        history.add([RUN])


def test_hashing_without_a_key_is_refused_where_the_settings_are_read(home: Path) -> None:
    home.mkdir()
    (home / "history.yaml").write_text("anonymise: users\n")
    with pytest.raises(HistoryError, match=r"history.yaml: .*users needs site_key"):
        History.open()
