"""Fitted predictors on disk: the one that ships answers at once, those fitted here replace it."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

from profiles.roots import roots

from ..errors import ArtifactError
from . import artifacts
from .core import Predictor

_log = logging.getLogger(__name__)
_DATA = (".yaml", ".csv", ".gz", ".json")


def tables_hash() -> str:
    """SHA-256 over every data file under ``profiles/`` and in the directories added to it."""
    return _hash_of(tuple((root, root.stat().st_mtime_ns) for root in roots()))


@cache
def _hash_of(where: tuple[tuple[Path, int], ...]) -> str:
    digest = hashlib.sha256()
    for root, _changed in where:
        for path in sorted(p for p in root.rglob("*") if p.suffix in _DATA):
            digest.update(str(path.relative_to(root)).encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()


def fit_and_store(progress: Callable[[str, float], None] | None = None) -> artifacts.Manifest:
    """Fit from ``profiles/``, store the predictor and put it to use."""
    from .fitting import fit, quiet

    fitted = fit(progress=progress or quiet)
    counts = {"rows": float(len(fitted.priced)), "refused": float(len(fitted.unreadable))}
    return artifacts.use(store(fitted.predictor, counts).version)


def store(predictor: Predictor, figures: Mapping[str, float]) -> artifacts.Manifest:
    """Store a predictor as a new version without putting it to use."""
    return artifacts.save(
        predictor.to_arrays(), predictor.to_state(), tables_hash=tables_hash(), figures=figures
    )


def load_predictor(version: str | None = None) -> Predictor:
    """The predictor in use, or a named version; the shipped one until another is put to use.

    A version fitted on other tables than those installed still loads, and the log says so.
    Raises ArtifactError where the version is missing or cannot be trusted.
    """
    artifact = artifacts.load(version)
    # The shipped predictor came with the shipped tables (a test compares them), so that only added
    # ones can be new to it, and nothing need be hashed where there are none.
    as_shipped = len(roots()) == 1 and artifact.manifest == artifacts.shipped()
    if not as_shipped and artifact.manifest.tables_hash != tables_hash():
        _log.warning(
            "predictor %s was fitted on other tables than those installed: "
            "run `precision-time fit`",
            artifact.manifest.version,
        )
    try:
        return Predictor.from_stored(artifact.arrays, artifact.state)
    except (KeyError, ValueError) as error:
        raise ArtifactError(
            f"predictor {artifact.manifest.version} does not match this release ({error}): "
            "run `precision-time fit`"
        ) from error
