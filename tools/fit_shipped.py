"""Fits anew the predictor that ships with the package: `python tools/fit_shipped.py`.

To be run after a change of profiles/ or of the code that prices a job; a slow test says when.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from pathlib import Path


def main() -> int:
    """Fit from profiles/ alone, without what this user added, and replace the artifact."""
    with tempfile.TemporaryDirectory() as home:
        os.environ["PRECISION_TIME_HOME"] = home
        from predictor.estimate.artifacts import SHIPPED_DIRECTORY
        from predictor.estimate.store import fit_and_store

        start = time.monotonic()
        manifest = fit_and_store(lambda stage, _share: print(stage, file=sys.stderr))
        stored = Path(home, "models", manifest.version)
        shutil.copytree(stored, SHIPPED_DIRECTORY, dirs_exist_ok=True)
    size = sum(path.stat().st_size for path in SHIPPED_DIRECTORY.iterdir())
    print(f"{manifest.version}: {size / 1e6:.1f} MB in {time.monotonic() - start:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
