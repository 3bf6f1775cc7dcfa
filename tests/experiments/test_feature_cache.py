"""Cached arrays: made once, made again if the file is damaged, never written in part."""

from __future__ import annotations

import numpy as np
import pytest

from taskloss.experiments.feature_cache import cached_arrays

ARRAYS = {"features": np.arange(600, dtype=np.float32).reshape(30, 20), "names": np.array(["a", "bc"]), "flag": np.array(True)}


class Maker:
    """Counts its calls."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self) -> dict[str, np.ndarray]:
        self.calls += 1
        return dict(ARRAYS)


def assert_arrays(arrays: dict[str, np.ndarray]) -> None:
    assert arrays.keys() == ARRAYS.keys()
    for name, array in arrays.items():
        assert array.dtype == ARRAYS[name].dtype
        np.testing.assert_array_equal(array, ARRAYS[name])


def test_makes_once(tmp_path):
    make, path = Maker(), tmp_path / "deep" / "features.npz"
    for _ in range(3):
        assert_arrays(cached_arrays(path, make))
    assert make.calls == 1
    assert [file.name for file in path.parent.iterdir()] == ["features.npz"]


def test_makes_a_damaged_file_again(tmp_path):
    make, path = Maker(), tmp_path / "features.npz"
    cached_arrays(path, make)
    whole = path.read_bytes()
    begin = whole.index(ARRAYS["features"].tobytes())
    flipped = whole[: begin + 40] + bytes([whole[begin + 40] ^ 255]) + whole[begin + 41 :]
    single = tmp_path / "single.npy"
    np.save(single, ARRAYS["features"])
    damaged = [b"", b"PK", whole[: len(whole) // 2], whole[:-10], flipped, b"no archive" * 100, single.read_bytes()]
    for number, content in enumerate(damaged, 2):
        path.write_bytes(content)
        assert_arrays(cached_arrays(path, make))
        assert make.calls == number
        assert path.read_bytes() == whole


def test_any_changed_byte_is_noticed_or_harmless(tmp_path):
    path = tmp_path / "features.npz"
    cached_arrays(path, Maker())
    whole = path.read_bytes()
    for place in np.random.default_rng(0).integers(0, len(whole), 60):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x55]) + whole[place + 1 :])
        assert_arrays(cached_arrays(path, Maker()))


def test_a_failure_leaves_nothing(tmp_path):
    def fail() -> dict[str, np.ndarray]:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cached_arrays(tmp_path / "features.npz", fail)
    assert list(tmp_path.iterdir()) == []


def test_a_failed_write_keeps_the_folder_clean(tmp_path, monkeypatch):
    def fail(file, **_):
        file.write(b"half")
        raise OSError("no space left on device")

    monkeypatch.setattr(np, "savez", fail)
    with pytest.raises(OSError, match="no space"):
        cached_arrays(tmp_path / "features.npz", Maker())
    assert list(tmp_path.iterdir()) == []


def test_objects_are_refused(tmp_path):
    with pytest.raises(ValueError, match="Python objects cannot be cached without pickle: odd"):
        cached_arrays(tmp_path / "features.npz", lambda: {"odd": np.array([{}, None])})
    assert list(tmp_path.iterdir()) == []
