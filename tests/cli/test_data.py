"""`precision-time catalog`, `gpus` and `profiles`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import Result

from predictor.cli.catalog import default_graph
from predictor.graphs.catalog import entries
from profiles.check import DataProblem

Run = Callable[..., Result]
RunJson = Callable[..., Any]


def test_catalog_shows_a_model_by_an_alias(run: Run, run_json: RunJson) -> None:
    found = run_json("catalog", "show", "resnet-50")
    assert found["name"] == "resnet50"
    assert found["parameters"] == found["graph_parameters"] == 25557032
    assert found["graph_forward_gflops"] == pytest.approx(found["forward_gflops"], rel=0.01)
    assert found["measured_rows"] > 100
    assert "25,557,032" in run("catalog", "show", "resnet50").stdout


def test_catalog_lists_what_a_name_means_or_is_a_part_of(run: Run, run_json: RunJson) -> None:
    names = [entry["name"] for entry in run_json("catalog", "list", "pythia")]
    assert {"pythia-70m", "pythia-12b"} <= set(names)
    assert all("pythia" in name for name in names)
    meant = run_json("catalog", "list", "mistralai/Mistral-7B-Instruct-v0.2")
    assert meant[0]["name"] == "mistral-7b"
    error = run("catalog", "list", "pythja-70m", code=2).stderr
    assert "pythia-70m" in error.partition("nearest names:")[2]


def test_catalog_shows_a_model_by_a_name_with_sizes(run_json: RunJson) -> None:
    found = run_json("catalog", "show", "google/bert_uncased_L-4_H-512_A-8")
    assert found["architecture"] == {"layers": 4, "hidden": 512, "heads": 8}
    assert found["parameters"] is None
    assert found["graph_parameters"] > 0


def test_catalog_says_why_a_name_means_no_model(run: Run) -> None:
    error = run("catalog", "show", "keras:ResNet50V2", code=2).stderr
    assert "pre-activation" in error


def test_a_model_without_a_size_of_its_own_is_shown_without_figures(run_json: RunJson) -> None:
    found = run_json("catalog", "show", "gpt")
    assert found["graph_parameters"] is None
    assert found["measured_rows"] > 0


def test_graphs_are_as_the_catalog_states() -> None:
    """Parameters to the last one, GFLOPs of the forward pass within 1 %."""
    stated = [e for e in entries() if e.parameters is not None or e.forward_gflops is not None]
    assert len(stated) > 1000
    for entry in stated:
        graph = default_graph(entry)
        assert entry.parameters in (None, graph.parameters), entry.name
        if entry.forward_gflops is not None:
            built = graph.forward_flops / 1e9
            assert built == pytest.approx(entry.forward_gflops, rel=0.01), entry.name


def test_gpus_have_their_peaks(run: Run, run_json: RunJson) -> None:
    (a100,) = [g for g in run_json("gpus") if g["name"] == "a100-sxm4-80gb"]
    assert (a100["memory_gib"], a100["peak_tflops"]["fp16_tensor"]) == (80, 312)
    assert any(line.startswith("a100-sxm4-80gb") for line in run("gpus").stdout.splitlines())


def test_profiles_check_exits_with_1_on_a_problem(
    run: Run, run_json: RunJson, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = DataProblem("operators", "row-7", "its time is negative")
    monkeypatch.setattr("profiles.check.check", lambda root: [problem])
    lines = run("profiles", "check", code=1).stdout.splitlines()
    assert lines[0] == "operators row-7: its time is negative"
    assert lines[1].startswith("1 problems, ")
    assert run_json("profiles", "check", code=1)["problems"] == [dataclasses.asdict(problem)]


def test_the_shipped_profiles_are_sound(run: Run) -> None:
    assert run("profiles", "check").stdout.startswith("0 problems")


def test_quarantined_rows_are_listed_with_their_reason(run: Run, run_json: RunJson) -> None:
    rows = run_json("profiles", "check")["quarantined"]
    assert rows
    summary = run("profiles", "check").stdout.splitlines()[2:]
    assert sum(int(line.split()[-1]) for line in summary) == len(rows)
    every = run("profiles", "check", "--all").stdout
    assert all(row["row"] in every and row["reason"] in every for row in rows)


def test_a_hole_is_shown_as_a_hole(run: Run) -> None:
    text = run("profiles", "coverage", "--gpu", "a100-sxm4-80gb").stdout
    (line,) = [x for x in text.splitlines() if x.split()[1:2] == ["conv2d"]]
    assert set(line.split()[2:]) == {"-+-"}


def test_coverage_of_one_gpu(run: Run, run_json: RunJson) -> None:
    found = run_json("profiles", "coverage", "--gpu", "V100-SXM2-32GB")
    assert {cell["gpu"] for cell in found["operators"]} == {"v100-sxm2-32gb"}
    assert {cell["gpu"] for cell in found["collectives"]} == {"v100-sxm2-32gb"}
    gemm = {
        c["direction"]: c["rows"]
        for c in found["operators"]
        if (c["op"], c["dtype"]) == ("gemm", "fp16")
    }
    text = run("profiles", "coverage", "--gpu", "v100-sxm2-32gb").stdout
    (line,) = [x for x in text.splitlines() if x.split()[1:2] == ["gemm"]]
    assert f"{gemm['fwd'] or '-'}+{gemm['bwd'] or '-'}" in line.split()
    assert f"{sum(c['rows'] == 0 for c in found['operators'])} of" in text


def test_coverage_of_an_unknown_gpu_names_the_nearest(run: Run) -> None:
    assert "a100" in run("profiles", "coverage", "--gpu", "a100x", code=2).stderr
