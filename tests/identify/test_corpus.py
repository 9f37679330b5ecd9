"""What launches in the style of well-known repositories say, and what they leave open."""

from __future__ import annotations

import pytest
from launch_corpus import Case, cases, score, stated, table

from predictor.errors import JobError

CASES = cases()
LEAST_CASES = 120


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.style}-{case.name}")
def test_a_launch_says_what_its_job_is_and_nothing_else(case: Case) -> None:
    found = score(case)
    assert not found.wrong
    assert not found.lost
    assert {problem.field for problem in case.read.doubts} == set(case.doubts)
    assert case.read.unknown_model == case.unknown


@pytest.mark.parametrize(
    "case", [c for c in CASES if c.unread], ids=lambda case: f"{case.style}-{case.name}"
)
def test_what_is_listed_as_unread_is_not_read(case: Case) -> None:
    listed = stated(case.unread)
    assert set(score(case).unread) == {
        name for name in listed if case.read.values.get(name) is None
    }
    assert not {k for k, v in listed.items() if case.read.values.get(k) == v}


@pytest.mark.parametrize(
    "case", [c for c in CASES if "file" in c.doubts], ids=lambda case: f"{case.style}-{case.name}"
)
def test_a_file_that_is_not_read_keeps_the_job_from_an_estimate(case: Case) -> None:
    with pytest.raises(JobError):
        case.read.job(gpu="a100-sxm4-80gb", gpus=8, precision="amp")


WITH_FILES = [c for c in CASES if c.files is not None]
LEAST_WITH_FILES = 25


@pytest.mark.parametrize("case", WITH_FILES, ids=lambda case: case.name)
def test_what_a_file_says_is_marked_as_its_own(case: Case) -> None:
    alone, read = case.read_alone, case.read
    for name, origin in read.origins.items():
        assert (origin == "file") <= (alone.values.get(name) != read.values[name]), name
    assert {problem.field for problem in alone.doubts} >= {p.field for p in read.doubts} & {"file"}


def test_files_are_worth_reading() -> None:
    assert len(WITH_FILES) >= LEAST_WITH_FILES
    fields = sum(len(case.read.values) - len(case.read_alone.values) for case in WITH_FILES)
    whole = [case for case in WITH_FILES if not case.read.doubts]
    alone = [case for case in whole if not case.read_alone.doubts]
    print(
        f"\n{len(WITH_FILES)} launches with files: {fields} more fields read, "
        f"{len(whole)} without doubt instead of {len(alone)}"
    )
    assert fields > 2 * len(WITH_FILES)
    assert len(whole) > len(alone)


def test_the_corpus_is_large_and_no_field_of_it_is_wrong() -> None:
    scored = [(case, score(case)) for case in CASES]
    print(f"\n{table(scored)}")
    assert len(CASES) >= LEAST_CASES
    assert not [(case.name, found.wrong) for case, found in scored if found.wrong]
