"""`precision-time trace`: from a user's module or a config to a prediction without torch."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

pytest.importorskip("torch")
from predictor.cli.main import main
from predictor.estimate.fitting import Fitted
from predictor.graphs.catalog import entry_of, graph_of
from predictor.graphs.operator import Workload

MODULE = """
import torch

def build():
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(7200, 10)
    )

class Tagger(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.table = torch.nn.Embedding(100, 16)
        self.rnn = torch.nn.LSTM(16, 32, batch_first=True)
        self.out = torch.nn.Linear(32, 5)

    def forward(self, x):
        return self.out(self.rnn(self.table(x))[0])

number = 3
"""
BUILD = ("trace", "own_nets:build", "--input", "3,32,32", "--name", "mynet")


def run(*words: str, code: int = 0) -> Result:
    result = CliRunner().invoke(main, words)
    assert result.exit_code == code, result.output
    return result


@pytest.fixture(autouse=True)
def project(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "own_nets.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    sys.modules.pop("own_nets", None)
    return tmp_path


def test_a_traced_network_is_listed_and_shown() -> None:
    told = json.loads(run(*BUILD, "--format", "json").stdout)
    assert told["parameters"] == 3 * 8 * 9 + 8 + 7200 * 10 + 10
    assert told["forward_gflops_per_sample"] == pytest.approx(2e-9 * (900 * 8 * 27 + 72000))
    assert "mynet" in run("catalog", "list").stdout
    assert told["stored_as"] in run("catalog", "show", "mynet").stdout


def test_an_unchanged_network_is_not_traced_again(project: Path) -> None:
    assert "tracing" in run(*BUILD).stderr
    assert run(*BUILD).stderr == ""
    (project / "own_nets.py").write_text(MODULE.replace("7200, 10", "7200, 11"))
    assert "tracing" in run(*BUILD).stderr


def test_sequence_length_and_batch_are_free_again() -> None:
    run("trace", "own_nets:Tagger", "--input", "S:int64", "--seq-len", "16")
    entry = entry_of("tagger")
    long = graph_of(entry.name, (), Workload(4, seq_len=32))
    short = graph_of(entry.name, (), Workload(2, seq_len=16))
    assert long.forward_flops == 4 * short.forward_flops
    assert {o.kind.value for o in long.operators} >= {"rnn", "embedding", "gemm", "loss"}


def test_a_config_needs_no_weights(project: Path) -> None:
    pytest.importorskip("transformers")
    config = {
        "model_type": "gpt2",
        "n_layer": 2,
        "n_embd": 64,
        "n_head": 4,
        "vocab_size": 1000,
        "architectures": ["GPT2LMHeadModel"],
    }
    (project / "config.json").write_text(json.dumps(config))
    words = ("--hf-config", "config.json", "--seq-len", "32", "--name", "gpt-own")
    told = json.loads(run("trace", *words, "--format", "json").stdout)
    assert told["any_seq_len"]
    assert told["parameters"] == 1000 * 64 + 1024 * 64 + 2 * (12 * 64 * 64 + 13 * 64) + 128


def without_torch(*words: str) -> subprocess.CompletedProcess[str]:
    """A command in a process of its own that cannot import torch."""
    code = "import sys; sys.modules['torch'] = None; from predictor.cli.main import main; main()"
    command = [sys.executable, "-c", code, *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_prediction_needs_no_torch(
    fitted: Fitted, session_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PRECISION_TIME_HOME", str(session_home))
    run(*BUILD)
    words = ("mynet", "--gpu", "v100-sxm2-16gb", "--batch-size", "128", "--precision", "fp32")
    done = without_torch("predict", *words, "--format", "json")
    assert done.returncode == 0, done.stderr
    # No other image size can be meant: it is not assumed, and widens nothing.
    assert "image_size" not in {one["field"] for one in json.loads(done.stdout)["assumptions"]}


def test_without_torch_the_extra_is_named() -> None:
    done = without_torch(*BUILD)
    assert done.returncode == 2
    assert "pip install 'precision-time[trace]'" in done.stderr


Mistake = tuple[tuple[str, ...], str]
MISTAKES: list[Mistake] = [
    (("no_such_module:build", "--input", "3"), "can be imported"),
    (("own_nets:missing", "--input", "3"), "has no missing"),
    (("own_nets:number", "--input", "3"), "a function or class, not int"),
    (("own_nets", "--input", "3"), "package.module:name"),
    (("own_nets:build",), "--input 3,224,224"),
    (("own_nets:build", "--input", "3,wide"), "input='3,wide'"),
    (("own_nets:build", "--input", "3,31,31"), "check --input"),
    (("own_nets:build", "--input", "3,32,32:fp8"), "dtype='fp8'"),
    (("own_nets:build", "--input", "S"), "seq_len"),
    (("own_nets:build", "--input", "3,32,32", "--loss", "hinge"), "cross_entropy"),
    (("--hf-config", "missing.json"), "hf_config"),
    ((), "give PACKAGE.MODULE:NAME or --hf-config FILE"),
]


@pytest.mark.parametrize(("words", "said"), MISTAKES, ids=[" ".join(w) for w, _ in MISTAKES])
def test_a_mistake_is_named_with_what_is_accepted(words: tuple[str, ...], said: str) -> None:
    assert said in run("trace", "--name", "mynet", *words, code=2).stderr


def test_an_edit_of_what_is_imported_beside_it_is_seen(project: Path) -> None:
    sys.modules.pop("own_parts", None)
    (project / "own_parts.py").write_text("WIDTH = 10\n")
    (project / "own_nets.py").write_text(
        MODULE.replace("10)", "own_parts.WIDTH)").replace(
            "import torch", "import torch\nimport own_parts", 1
        )
    )
    assert "tracing" in run(*BUILD).stderr
    assert run(*BUILD).stderr == ""
    (project / "own_parts.py").write_text("WIDTH = 11\n")
    assert "tracing" in run(*BUILD).stderr


def test_an_edit_in_a_package_or_in_a_loss_elsewhere_is_seen(project: Path) -> None:
    package = project / "own_package"
    (package / "parts").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "nets.py").write_text(MODULE)
    (package / "parts" / "deep.py").write_text("WIDTH = 1\n")
    (project / "own_losses.py").write_text("def total(output): return output.sum()\n")
    words = (
        "trace",
        "own_package.nets:build",
        "--input",
        "3,32,32",
        "--name",
        "packed",
        "--loss",
        "own_losses:total",
    )
    assert "tracing" in run(*words).stderr
    assert run(*words).stderr == ""
    (package / "parts" / "deep.py").write_text("WIDTH = 2\n")
    assert "tracing" in run(*words).stderr
    (project / "own_losses.py").write_text("def total(output): return output.mean()\n")
    assert "tracing" in run(*words).stderr
