"""Data in parts: files, delayed blocks and Dask arrays, here and on a cluster."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bags import equal_bags, make_bags

from sparsetoken import ParameterError, fit_readout
from sparsetoken.estimators import AttentionClassifier, PooledClassifier
from sparsetoken.estimators.partitions import DelayedPart, FilePart, _client, read_partitions

distributed = pytest.importorskip("distributed")
da = pytest.importorskip("dask.array")

PLAN: dict[str, Any] = {"refine": True, "tied": True, "sharpness": 2.0, "ridge": 0.01}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0"
    ) as local:
        yield local


@pytest.fixture
def client(cluster: Any) -> Iterator[Any]:
    with distributed.Client(cluster) as one:
        yield one


def files(folder: Path, X: np.ndarray, parts: int = 4) -> list[Path]:
    paths = []
    for index, part in enumerate(np.array_split(X, parts)):
        paths.append(folder / f"part{index}.npy")
        np.save(paths[-1], part)
    return paths


@pytest.mark.parametrize("model", [AttentionClassifier(**PLAN), PooledClassifier()], ids=repr)
def test_files_are_the_array_that_they_hold(model: Any, tmp_path: Path) -> None:
    X, y, _ = equal_bags(count=200)
    expected = model.fit(X, y).decision_function(X)
    paths = files(tmp_path, X)
    found = model.fit(paths, y).decision_function([str(path) for path in paths])
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(model.fit(X, y).decision_function(paths), expected, rtol=1e-9)


def test_every_choice_works_on_parts(tmp_path: Path) -> None:
    X, y, positions = equal_bags(count=200)
    model = AttentionClassifier().fit(files(tmp_path, X), y)
    assert model.family_ == AttentionClassifier().fit(X, y).family_
    located = model.locate(files(tmp_path, X))[:, 0]
    assert np.mean(located[y == 1] == positions[y == 1]) > 0.9


def test_features_of_slides(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    bags = make_bags(count=60)
    paths = []
    for index, bag in enumerate(bags.X):
        paths.append(tmp_path / f"slide{index}.h5")
        with h5py.File(paths[-1], "w") as file:
            file["features"] = bag[None] if index % 2 else bag
            file["coords"] = np.zeros((len(bag), 2))
    model = AttentionClassifier(**PLAN)
    expected = model.fit(bags.X, bags.y).decision_function(bags.X)
    np.testing.assert_allclose(
        model.fit(paths, bags.y).decision_function(paths), expected, rtol=1e-6, atol=1e-8
    )
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["embeddings"] = bags.X[0]
    with pytest.raises(ParameterError, match="one named 'features'"):
        model.fit([tmp_path / "other.h5"], [0])


def test_a_cluster_gives_the_same_to_the_last_bit(client: Any) -> None:
    X, y, _ = equal_bags(count=300)
    chunked = da.from_array(X, chunks=(60, -1, -1))
    model = AttentionClassifier(**PLAN)
    on_two = model.fit(chunked, da.from_array(y, chunks=60), client=client).decision_function(X)
    first = next(iter(client.scheduler_info()["workers"]))
    with client.as_current():
        pinned = [client.compute(block, workers=[first]) for block in chunked.to_delayed().ravel()]
        distributed.wait(pinned)
        on_one = model.fit(chunked, y).decision_function(X)
    np.testing.assert_array_equal(on_one, on_two)
    delayed = list(chunked.to_delayed().ravel())
    np.testing.assert_array_equal(model.fit(delayed, y, client=client).decision_function(X), on_two)
    whole = model.fit(X, y).decision_function(X)
    np.testing.assert_allclose(on_two, whole, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(model.decision_function(chunked), whole, rtol=1e-9)


def test_a_poor_basin_is_left_where_starts_are_tried_on_a_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    y = rng.permutation(np.arange(300) % 2)
    X = rng.standard_normal((300, 20, 6))
    X[y == 1, :, 0] += 0.5  # all tokens are moved, and a start as sharp as this sees one alone
    monkeypatch.setattr("sparsetoken.estimators.refinement.LARGE_BYTES", X.nbytes // 3)
    model = AttentionClassifier(refine=True, tied=True, sharpness=50.0, ridge=0.01)
    model.fit(files(tmp_path, X), y)
    means = ((X - model.mean_) / model.scale_).mean(axis=1)
    pooled = fit_readout(means, 2.0 * y - 1, loss="logistic", ridge=0.01)
    # From its own start alone it ends 0.15 above.
    assert model.model_.problems[0].objective <= pooled.objective + 2e-5


@pytest.mark.slow
def test_a_lost_worker_is_survived(tmp_path: Path) -> None:
    X, y, _ = equal_bags(count=2000, length=20, strength=2.0)
    paths = files(tmp_path, X, parts=10)
    model = AttentionClassifier(**PLAN, tol=1e-12, max_iter=500)
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0"
        ) as local,
        distributed.Client(local) as one,
    ):
        expected = model.fit(paths, y, client=one).decision_function(X)
        pids = list(one.run(os.getpid).values())
        killed = []

        def kill() -> None:
            time.sleep(0.2)
            os.kill(pids[0], signal.SIGKILL)
            killed.append(pids[0])

        thread = threading.Thread(target=kill)
        thread.start()
        for _ in range(20):  # long enough that one of the fits meets the kill
            found = model.fit(paths, y, client=one).decision_function(X)
            np.testing.assert_array_equal(found, expected)
            if killed:
                break
        thread.join()
        assert killed


def test_bad_parts_are_named(tmp_path: Path) -> None:
    X, y, _ = equal_bags(count=20)
    with pytest.raises(ParameterError, match="chunks along samples alone"):
        PooledClassifier().fit(da.from_array(X, chunks=(10, 3, -1)), y)
    with pytest.raises(ParameterError, match=r"ends in \.npy"):
        PooledClassifier().fit([str(tmp_path / "x.txt")], y)
    with pytest.raises(ParameterError, match="mask"):
        PooledClassifier().fit(files(tmp_path, X), y, mask=np.ones((20, 6)))
    np.save(tmp_path / "part1.npy", X[:5, :, :3])
    with pytest.raises(ParameterError, match="dimensions of the parts"):
        PooledClassifier().fit([tmp_path / f"part{i}.npy" for i in range(2)], y)


def test_rows_taken_from_files_keep_no_file_mapped(tmp_path: Path) -> None:
    np.save(tmp_path / "part.npy", np.arange(24.0).reshape(4, 3, 2))
    sequences = read_partitions([tmp_path / "part.npy"])
    taken = sequences.take(np.array([1, 3]))
    assert all(row.flags.owndata and type(row) is np.ndarray for row in taken._source)
    np.testing.assert_array_equal(taken._source[1], np.arange(18.0, 24).reshape(3, 2))


def test_a_client_that_is_given_is_used_and_files_need_none(monkeypatch: Any) -> None:
    monkeypatch.setattr(distributed, "get_client", lambda: "active")
    blocks, files = [DelayedPart(None)], [FilePart("a.npy")]
    assert _client("given", blocks) == "given"
    assert _client("given", files) == "given"
    assert _client(None, blocks) == "active"
    assert _client(None, files) is None
