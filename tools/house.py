"""Counts what keeps the code readable: rooms, lines, twin names, circles, files of one prediction.

Prints one line a figure beside its bound, and exits with 1 if one is over it. Run it from the root
of the repository: ``python tools/house.py``.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import grimp

ROOT = Path(__file__).resolve().parents[1]
PRODUCT = ("predictor", "slurm_plugin", "k8s_extender", "precision_time")
# Bounds of the house; what a figure counts stands in ``figures``.
ENTRIES, LINES, TWINS, PREDICTION_FILES = 20, 62_180, 10, 40


def sources() -> list[Path]:
    """Every Python and Lua file of the product."""
    return sorted(p for room in PRODUCT for p in (ROOT / room).rglob("*") if is_source(p))


def is_source(path: Path) -> bool:
    """Whether it is a file of code."""
    return path.suffix in {".py", ".lua"}


def entries() -> int:
    """Files and folders directly under ``predictor``."""
    return sum(p.name != "__pycache__" for p in (ROOT / "predictor").iterdir())


def lines() -> int:
    """Lines of the product, comments and blank ones included."""
    return sum(len(path.read_text("utf-8").splitlines()) for path in sources())


def twins() -> list[str]:
    """Public class names that more than one module of the product defines."""
    names = Counter(name for path in sources() if path.suffix == ".py" for name in classes(path))
    return sorted(name for name, count in names.items() if count > 1)


def classes(path: Path) -> Iterator[str]:
    """Public classes of a module, by name."""
    for node in ast.parse(path.read_text("utf-8")).body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield node.name


def skips() -> int:
    """Places where the formatter is told to look away."""
    mark = "fmt: " + "skip"
    folders = (*PRODUCT, "benchmarks", "profiles", "tests", "tools")
    files = (p for folder in folders for p in (ROOT / folder).rglob("*.py"))
    return sum(path.read_text("utf-8").count(mark) for path in files)


def circles() -> int:
    """Modules that import themselves by way of others, counted over all packages."""
    graph = grimp.build_graph(*PRODUCT, exclude_type_checking_imports=True)
    imports = {m: graph.find_modules_directly_imported_by(m) for m in graph.modules}
    while free := {m for m, targets in imports.items() if not targets & imports.keys()}:
        imports = {m: targets for m, targets in imports.items() if m not in free}
    importers = {m: {n for n in imports if m in imports[n]} for m in imports}
    while free := {m for m, sources in importers.items() if not sources & importers.keys()}:
        importers = {m: sources for m, sources in importers.items() if m not in free}
    return len(importers)


def prediction_files() -> set[str]:
    """Files of ``predictor`` that a first prediction runs through, its predictor being loaded."""
    from precision_time import TrainingJob, load_predictor

    predictor = load_predictor()
    job = TrainingJob(model="resnet50", precision="amp", gpu="a100", gpus=8, batch_size=256)  # type: ignore[arg-type]
    seen: set[str] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            seen.add(frame.f_code.co_filename)

    sys.setprofile(note)
    try:
        predictor.predict(job)
    finally:
        sys.setprofile(None)
    return {name for name in seen if Path(name).is_relative_to(ROOT / "predictor")}


def main() -> int:
    """Prints the figures; 1 if one is over its bound."""
    names = twins()
    figures = (
        ("entries under predictor/", entries(), ENTRIES),
        ("lines of the product", lines(), LINES),
        ("public class names used twice", len(names), TWINS),
        ("formatter told to look away", skips(), 0),
        ("modules in a circle of imports", circles(), 0),
        (
            "files of predictor/ one prediction runs through",
            len(prediction_files()),
            PREDICTION_FILES,
        ),
    )
    for what, figure, bound in figures:
        print(f"{what:50}{figure:>8,}   at most {bound:,}{'' if figure <= bound else '   OVER'}")
    if names:
        print("used twice:", ", ".join(names))
    return int(any(figure > bound for _, figure, bound in figures))


if __name__ == "__main__":
    sys.exit(main())
