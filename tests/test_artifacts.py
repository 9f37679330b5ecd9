"""The artifact store: what was saved comes back, and nothing else is ever loaded."""

from __future__ import annotations

import json
import logging
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays, floating_dtypes, integer_dtypes
from numpy.typing import NDArray

from predictor.errors import ArtifactError
from predictor.estimate import artifacts

STATE = {
    "z": 1,
    "a": 2,
    "families": ["cnn", "gpt"],
    "shrinkage": {"site": 4.0, "model": 2.5},
    "note": "ü",
}


def fitted(fill: float = 1.0, size: int = 8) -> dict[str, NDArray[Any]]:
    return {"trees.threshold": np.full(size, fill, np.float32), "trees.left": np.arange(size)}


def saved(fill: float = 1.0, size: int = 8) -> str:
    return artifacts.save(fitted(fill, size), STATE, tables_hash="t" * 64).version


def in_use(fill: float = 1.0) -> str:
    version = saved(fill)
    artifacts.use(version)
    return version


def fill_of(version: str | None = None) -> float:
    return float(artifacts.load(version).arrays["trees.threshold"][0])


class TestWhatWasSavedComesBack:
    def test_arrays_state_and_manifest(self, home: Path) -> None:
        figures = {"mape": 0.21}
        manifest = artifacts.save(fitted(3.5), STATE, tables_hash="abc", figures=figures)
        artifact = artifacts.load(manifest.version)
        assert list(artifact.state.items()) == list(STATE.items())
        assert artifact.arrays.keys() == fitted().keys()
        for name, array in fitted(3.5).items():
            np.testing.assert_array_equal(artifact.arrays[name], array, strict=True)
        assert artifact.manifest == manifest
        assert (manifest.tables_hash, manifest.figures) == ("abc", figures)
        assert manifest.libraries["numpy"] == np.__version__
        assert manifest.created.endswith("+00:00")

    @settings(max_examples=20)
    @given(
        values=st.dictionaries(
            st.from_regex(
                r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,9}(/[A-Za-z0-9_][A-Za-z0-9_.-]{0,9})?",
                fullmatch=True,
            ),
            arrays(integer_dtypes() | floating_dtypes(), array_shapes(min_dims=0, min_side=0)),
            max_size=3,
        )
    )
    def test_any_numbers_bit_for_bit(
        self, values: Mapping[str, NDArray[Any]], tmp_path_factory: pytest.TempPathFactory
    ) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PRECISION_TIME_HOME", str(tmp_path_factory.mktemp("any")))
            artifact = artifacts.load(artifacts.save(values, {}, tables_hash="").version)
        assert artifact.arrays.keys() == values.keys()
        for name, array in values.items():
            loaded = artifact.arrays[name]
            assert (loaded.dtype, loaded.shape) == (array.dtype, array.shape)
            assert loaded.tobytes() == array.tobytes()

    def test_arrays_cannot_be_changed(self, home: Path) -> None:
        artifact = artifacts.load(saved())
        with pytest.raises(ValueError, match="read-only"):
            artifact.arrays["trees.threshold"][0] = 2.0

    def test_home_follows_xdg_when_not_named(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("PRECISION_TIME_HOME")
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        version = saved()
        assert (tmp_path / "precision-time" / "models" / version / "state.json").is_file()

    def test_umask_does_not_make_files_others_can_change(self, home: Path) -> None:
        old = os.umask(0o002)
        try:
            assert fill_of(in_use(2.0)) == 2.0
        finally:
            os.umask(old)


class TestWhatCannotBeStored:
    def test_objects(self, home: Path) -> None:
        with pytest.raises(ArtifactError, match="'model' holds objects"):
            artifacts.save({"model": np.array([object()])}, {}, tables_hash="")
        assert artifacts.versions() == []

    @pytest.mark.parametrize("value", [float("nan"), np.float32(1.0), {1, 2}])
    def test_state_beyond_json(self, home: Path, value: object) -> None:
        with pytest.raises(ArtifactError, match="only finite numbers"):
            artifacts.save({}, {"value": value}, tables_hash="")

    def test_a_home_that_cannot_be_made_is_named(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "file").touch()
        monkeypatch.setenv("PRECISION_TIME_HOME", str(tmp_path / "file" / "home"))
        with pytest.raises(ArtifactError, match=r"file/home.*PRECISION_TIME_HOME"):
            saved()


class TestVersions:
    def test_sort_by_time(self, home: Path) -> None:
        made = [saved(fill) for fill in (3.0, 1.0, 2.0)]
        assert [manifest.version for manifest in artifacts.versions()] == made

    def test_saving_changes_nothing_in_use(self, home: Path) -> None:
        first = in_use(1.0)
        saved(2.0)
        assert artifacts.current() == first
        assert fill_of() == 1.0

    def test_use_and_rollback_walk_back_through_what_was_in_use(self, home: Path) -> None:
        versions = [in_use(fill) for fill in (1.0, 2.0, 3.0)]
        assert [artifacts.rollback().version for _ in range(2)] == [versions[1], versions[0]]
        assert fill_of() == 1.0
        assert artifacts.rollback() == artifacts.shipped()
        with pytest.raises(ArtifactError, match="no earlier version"):
            artifacts.rollback()
        assert artifacts.current() == artifacts.shipped().version

    def test_using_the_same_again_leaves_the_history(self, home: Path) -> None:
        first, second = in_use(1.0), in_use(2.0)
        artifacts.use(second)
        assert artifacts.rollback().version == first

    def test_rollback_skips_what_is_gone_or_damaged(
        self, home: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        first, gone, damaged, _ = (in_use(fill) for fill in (1.0, 2.0, 3.0, 4.0))
        artifacts.remove(gone)
        (home / "models" / damaged / "state.json").write_text("{}")
        with caplog.at_level(logging.WARNING):
            assert artifacts.rollback().version == first
        assert gone in caplog.text
        assert damaged in caplog.text

    def test_remove_deletes_but_not_the_one_in_use(self, home: Path) -> None:
        first, second = saved(1.0), in_use(2.0)
        artifacts.remove(first)
        assert [manifest.version for manifest in artifacts.versions()] == [second]
        with pytest.raises(ArtifactError, match="in use"):
            artifacts.remove(second)
        assert fill_of() == 2.0

    @pytest.mark.parametrize("version", ["../../etc", "", "20250101-000000-000000-0123456789ab"])
    def test_unknown_versions_are_errors_that_name_the_known(
        self, home: Path, version: str
    ) -> None:
        known = saved()
        for action in (artifacts.use, artifacts.remove):
            with pytest.raises(ArtifactError, match=known):
                action(version)


def of_format(version: str, number: int, home: Path) -> None:
    """Make a stored version one of another release."""
    directory = home / "models" / version
    path = directory / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format": number}))


class TestShipped:
    def test_it_is_in_use_until_another_is(self, home: Path) -> None:
        shipped = artifacts.shipped()
        assert artifacts.current() == shipped.version
        assert artifacts.load().manifest == shipped
        assert not home.exists()  # nothing is written to say so
        other = in_use()
        assert artifacts.current() == other

    def test_it_can_be_put_back_to_use_under_both_its_names(self, home: Path) -> None:
        for name in (artifacts.SHIPPED, artifacts.shipped().version):
            in_use()
            assert artifacts.use(name) == artifacts.shipped()
            assert artifacts.current() == artifacts.shipped().version

    def test_a_later_release_brings_its_own(self, home: Path) -> None:
        """A home names it by a word, not by the version of the release that wrote the home."""
        in_use()
        artifacts.use(artifacts.SHIPPED)
        assert (home / "current").read_text() == "shipped\n"

    def test_it_cannot_be_removed(self, home: Path) -> None:
        with pytest.raises(ArtifactError, match="comes with this release"):
            artifacts.remove(artifacts.shipped().version)

    def test_it_is_small(self) -> None:
        sizes = [path.stat().st_size for path in artifacts.SHIPPED_DIRECTORY.iterdir()]
        assert sum(sizes) < 10e6

    def test_it_answers_where_the_home_cannot_be_written(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "home").mkdir(mode=0o555)
        monkeypatch.setenv("PRECISION_TIME_HOME", str(tmp_path / "home"))
        assert artifacts.load().manifest == artifacts.shipped()

    def test_it_replaces_what_an_older_release_stored(
        self, home: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        old = in_use()
        of_format(old, 1, home)
        with caplog.at_level(logging.WARNING):
            assert artifacts.load().manifest == artifacts.shipped()
        assert f"version {old} has format 1, this release reads {artifacts.FORMAT}" in caplog.text
        with pytest.raises(ArtifactError, match="precision-time fit"):
            artifacts.load(old)

    def test_a_changed_file_is_refused(self, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        copy = home.parent / "shipped"
        shutil.copytree(artifacts.SHIPPED_DIRECTORY, copy)
        monkeypatch.setattr(artifacts, "SHIPPED_DIRECTORY", copy)
        (copy / "state.json").write_text("{}")
        with pytest.raises(ArtifactError, match=r"not what was stored.*install .* anew"):
            artifacts.load()


class TestWhatIsRefused:
    @pytest.mark.parametrize("file", ["state.json", "arrays.npz", "manifest.json"])
    def test_one_changed_byte(self, home: Path, file: str) -> None:
        path = home / "models" / in_use() / file
        content = bytearray(path.read_bytes())
        content[-3] ^= 1
        path.write_bytes(content)
        with pytest.raises(ArtifactError, match=r"not what was stored|is damaged"):
            artifacts.load()

    @pytest.mark.parametrize("file", ["state.json", "arrays.npz", "manifest.json"])
    def test_a_missing_file(self, home: Path, file: str) -> None:
        (home / "models" / in_use() / file).unlink()
        with pytest.raises(ArtifactError, match=r"missing|is damaged"):
            artifacts.load()

    def test_a_wrong_hash_before_numpy_opens_anything(
        self, home: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        opened: list[Path] = []
        monkeypatch.setattr(np, "load", lambda path, **_: opened.append(path))
        (home / "models" / in_use() / "arrays.npz").write_bytes(b"PK")
        with pytest.raises(ArtifactError, match=r"arrays\.npz"):
            artifacts.load()
        assert opened == []

    def test_a_manifest_rewritten_to_fit_changed_files(self, home: Path) -> None:
        directory = home / "models" / in_use()
        (directory / "state.json").write_text("{}")
        path = directory / "manifest.json"
        content = json.loads(path.read_text())
        content["files"]["state.json"] = artifacts._sha256(directory / "state.json")
        path.write_text(json.dumps(content))
        with pytest.raises(ArtifactError, match="is damaged"):
            artifacts.load()

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root reads another user's home")
    def test_root_writes_into_a_home_of_someone_else(self, home: Path) -> None:
        version = in_use()
        for path in (home, *home.rglob("*")):
            os.chown(path, 12345, -1)
        assert artifacts.load().arrays
        with pytest.raises(ArtifactError, match="run this as that user"):
            artifacts.use(version)

    @pytest.mark.parametrize("name", ["models", "current", "{}", "{}/state.json"])
    def test_what_belongs_to_someone_else(
        self, home: Path, monkeypatch: pytest.MonkeyPatch, name: str
    ) -> None:
        path = home / name.format("models/" + in_use())
        if os.geteuid() == 0:
            os.chown(path, 12345, -1)
        else:
            monkeypatch.setattr(os, "geteuid", lambda: 12345)
        with pytest.raises(ArtifactError, match="belongs to user"):
            artifacts.load()

    @pytest.mark.parametrize("name", ["", "models", "current", "{}", "{}/arrays.npz"])
    @pytest.mark.parametrize("bit", [0o020, 0o002])
    def test_what_others_can_write(self, home: Path, name: str, bit: int) -> None:
        path = home / name.format("models/" + in_use())
        path.chmod(path.stat().st_mode | bit)
        with pytest.raises(ArtifactError, match="chmod go-w"):
            artifacts.load()

    @pytest.mark.parametrize("name", ["models", "current", "{}", "{}/arrays.npz"])
    def test_links(self, home: Path, tmp_path: Path, name: str) -> None:
        path = home / name.format("models/" + in_use())
        path.rename(tmp_path / "elsewhere")
        path.symlink_to(tmp_path / "elsewhere")
        with pytest.raises(ArtifactError, match="is a link"):
            artifacts.load()

    def test_a_bad_version_hides_no_good_one(
        self, home: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        bad, good = saved(1.0), saved(2.0)
        (home / "models" / bad / "manifest.json").write_text("[]")
        with caplog.at_level(logging.WARNING):
            assert [manifest.version for manifest in artifacts.versions()] == [good]
        assert bad in caplog.text
