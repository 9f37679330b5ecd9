"""A report that leaves the house: sent by mail, with no name of a person, account or job in it."""

from __future__ import annotations

import email
import json
from collections.abc import Iterator
from email import policy
from pathlib import Path
from typing import Any

import pytest
from capacity_jobs import START_S, frame, job
from click.testing import CliRunner, Result
from history_runs import run_number
from smtp_server import MailServer, mail_server

from predictor.cli.main import main
from predictor.estimate.fitting import Fitted
from predictor.site.history.run import JobState
from predictor.site.history.store import History

PERSON, ACCOUNT, JOB = "ada-lovelace", "countess-lab", "secret-project"
NAMES = (PERSON, ACCOUNT, JOB)
ASKED = "model=resnet50 precision=fp32 batch_size=64 steps=20000"
PERIOD = ("--since", "2025-01-06T00:00+00:00", "--until", "2025-01-07T00:00+00:00")


def run(*words: str) -> Result:
    return CliRunner().invoke(main, ["capacity", "report", *PERIOD, *words])


@pytest.fixture
def key(tmp_path: Path) -> str:
    path = tmp_path / "site.key"
    path.write_text("a key of this site, long enough")
    path.chmod(0o600)
    return str(path)


@pytest.fixture
def queue(tmp_path: Path) -> str:
    """A file of ended, running and waiting jobs, of one person."""
    mine: dict[str, Any] = {"user": PERSON, "account": ACCOUNT, "name": JOB, "asked": ASKED}
    day = 86_400.0
    jobs = [
        *(job(job_id=str(n), gpus=2, limit_s=9 * 3600.0, **mine) for n in range(40)),
        job(job_id="90", state="running", end_s=None, gpus=4, limit_s=3 * day, **mine),
        job(job_id="91", state="pending", start_s=None, end_s=None, **mine),
        job(job_id="92", state="cancelled", start_s=None, **mine),
    ]
    path = tmp_path / f"of-{PERSON}.parquet"
    frame(jobs).sink_parquet(path)
    return str(path)


@pytest.fixture
def history(tmp_path: Path) -> str:
    """A history in the home of that person."""
    folder = tmp_path / PERSON
    folder.mkdir()
    ended = {
        "name": JOB,
        "user": PERSON,
        "account": ACCOUNT,
        "state": JobState.FAILED,
        "gpus": 2,
        "submit_s": START_S,
        "start_s": START_S,
        "end_s": START_S + 3600,
    }
    with History.open(str(folder / "history.sqlite")) as store:
        store.add([run_number(0, ended=ended)])
        return store.url


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MailServer]:
    """The mail server that the local sendmail hands mail to."""
    folder = tmp_path / "sbin"
    folder.mkdir()
    with mail_server() as found:
        found.sendmail(folder)
        monkeypatch.setenv("PATH", str(folder), prepend=":")
        yield found


def everything(folder: Path) -> tuple[str, ...]:
    return (
        "--output",
        str(folder / "r.html"),
        "--csv",
        str(folder / "csv"),
        "--json",
        str(folder / "r.json"),
        "--prometheus",
        str(folder / "r.prom"),
        "--email",
        "ops@example.org",
    )


def forms(folder: Path, said: Result) -> dict[str, str]:
    """All that was written, and what was printed: the page again, the mail and the tables."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    found = {str(path.relative_to(folder)): path.read_text() for path in files}
    mail = said.stderr[said.stderr.index("Subject:") :]
    parsed = email.message_from_string(mail, policy=policy.default)
    for at, part in enumerate(parsed.walk()):
        if not part.is_multipart():
            found[f"part {at}"] = str(part.get_content())
    return found | {"stdout": said.stdout}


def test_with_a_key_no_name_is_in_any_form(
    queue: str, key: str, tmp_path: Path, fitted: Fitted
) -> None:
    clear = run("--from", queue, "--format", "json")
    assert clear.exit_code == 0, clear.output
    assert all(name in clear.stdout for name in NAMES)
    out = tmp_path / "out"
    out.mkdir()
    hashed = run("--from", queue, "--site-key", key, *everything(out))
    assert hashed.exit_code == 0, hashed.output
    found = forms(out, hashed)
    assert {Path(where).suffix for where in found} >= {".html", ".json", ".prom", ".csv"}
    assert json.loads(found["r.json"])["queue"][0]["job_id"] == "91"
    for where, text in found.items():
        assert not [name for name in NAMES if name in text], where


def test_where_the_history_is_tells_no_name_either(history: str, key: str) -> None:
    words = ("--history", history, "--format", "json")
    assert PERSON in run(*words).stdout
    found = run(*words, "--site-key", key)
    assert PERSON not in found.stdout
    said = json.loads(found.stdout)
    assert said["origin"]["name"] == "history"
    assert said["hours"]["failed"] == pytest.approx(2)


def test_a_mail_is_shown_before_it_is_sent(queue: str, key: str, server: MailServer) -> None:
    words = (
        "--from",
        queue,
        "--site-key",
        key,
        "--email",
        "ops@example.org",
        "--email",
        "root",
        "--email-from",
        "hpc@example.org",
    )
    shown = run(*words)
    assert "To: ops@example.org, root" in shown.stderr
    assert not server.delivered
    sent = run(*words, "--send")
    assert sent.exit_code == 0, sent.output
    assert "sent to ops@example.org, root" in sent.stderr
    [mail] = server.delivered
    assert mail.recipients == ("ops@example.org", "root")
    assert mail.message["From"] == "hpc@example.org"
    text, page = (str(part.get_content()) for part in mail.message.iter_parts())
    assert "GPU-hours" in text
    assert page.startswith("<!DOCTYPE html>")
    assert not [name for name in NAMES if name in text + page]


def test_to_send_there_has_to_be_an_address(queue: str) -> None:
    found = run("--from", queue, "--send")
    assert found.exit_code == 2
    assert "--send needs --email" in found.stderr
