"""Every form of input gives the same result, and bad input an error that names the sample."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bags import equal_bags, make_bags
from hypothesis import given
from hypothesis import strategies as st

from sparsetoken import ParameterError
from sparsetoken.arrays import Array
from sparsetoken.estimators import (
    AttentionClassifier,
    AttentionRegressor,
    ElementwiseAttentionClassifier,
    PooledClassifier,
    TokenWise,
    VectorisedClassifier,
    mask_tokens,
    sequences,
)
from sparsetoken.estimators.sequences import as_sequences

CLASSIFIERS = [
    AttentionClassifier(random_state=0),
    AttentionClassifier(random_state=0, refine=False, split=0.4, heads=2),
    ElementwiseAttentionClassifier(random_state=0, tied=False),
    PooledClassifier(),
    PooledClassifier(pooling="max"),
]


@pytest.mark.parametrize("model", CLASSIFIERS, ids=repr)
def test_padding_never_changes_a_result(model: Any) -> None:
    bags = make_bags()
    array, mask = bags.padded
    expected = model.fit(bags.X, bags.y).decision_function(bags.X)
    for padding in (0.0, 1e3, np.nan):
        filled = np.where(mask[:, :, None], array, padding)
        by_argument = model.fit(filled, bags.y, mask=mask).decision_function(filled, mask=mask)
        np.testing.assert_array_equal(by_argument, expected)
        masked = mask_tokens(filled, mask)
        np.testing.assert_array_equal(model.fit(masked, bags.y).decision_function(masked), expected)
    longer = np.concatenate([array, np.full_like(array, 7.0)], axis=1)
    longer_mask = np.concatenate([mask, np.zeros_like(mask)], axis=1)
    np.testing.assert_array_equal(model.decision_function(longer, mask=longer_mask), expected)
    assert model.score(longer, bags.y, mask=longer_mask) == model.score(bags.X, bags.y)
    # Padding anywhere, not only at the end, and tokens in any order.
    shuffled = np.random.default_rng(0).permutation(longer.shape[1])
    moved = model.decision_function(longer[:, shuffled], mask=longer_mask[:, shuffled])
    np.testing.assert_allclose(moved, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("model", [*CLASSIFIERS, VectorisedClassifier()], ids=repr)
def test_lists_and_arrays_agree(model: Any) -> None:
    X, y, _ = equal_bags()
    expected = model.fit(X, y).decision_function(X)
    np.testing.assert_array_equal(model.fit(list(X), y).decision_function(list(X)), expected)
    ragged = np.empty(len(X), dtype=object)
    ragged[:] = list(X)
    np.testing.assert_array_equal(model.decision_function(ragged), expected)


@pytest.mark.parametrize("model", [*CLASSIFIERS, VectorisedClassifier()], ids=repr)
def test_block_size_does_not_matter(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    X, y, _ = equal_bags()
    expected = model.fit(X, y).decision_function(X)
    for size in (1, 1000, 2**30):
        monkeypatch.setattr(sequences, "BLOCK_BYTES", size)
        np.testing.assert_allclose(
            model.fit(X, y).decision_function(X), expected, rtol=1e-5, atol=1e-6
        )


@pytest.mark.parametrize("model", [*CLASSIFIERS, VectorisedClassifier()], ids=repr)
def test_dtype_is_kept(model: Any) -> None:
    X, y, _ = equal_bags(dtype=np.float32)
    single = model.fit(X, y).decision_function(X)
    assert single.dtype == np.float32
    double = model.fit(X.astype(float), y).decision_function(X.astype(float))
    assert double.dtype == np.float64
    assert np.mean((single > 0) == (double > 0)) > 0.98
    if hasattr(model, "attention"):
        assert model.attention(X.astype(float)).dtype == np.float64
        assert model.attention(X).dtype == np.float32
    whole = np.rint(4 * X).astype(np.int16)
    assert model.fit(whole, y).decision_function(whole).dtype == np.float64


@pytest.mark.parametrize("model", [*CLASSIFIERS, VectorisedClassifier()], ids=repr)
def test_results_do_not_depend_on_scale_or_location(model: Any) -> None:
    X, y, _ = equal_bags()
    moved = X * np.array([1e-3, 1.0, 50.0, 1e4, 7.0]) + np.array([3.0, -1.0, 0.0, 1e4, 100.0])
    expected = model.fit(X, y).decision_function(X)
    np.testing.assert_allclose(
        model.fit(moved, y).decision_function(moved), expected, rtol=1e-3, atol=2e-3
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    "model",
    [
        *CLASSIFIERS,
        AttentionClassifier(refine=False, sharpness=0.0),
        AttentionClassifier(refine=False, whiten=True),
    ],
    ids=repr,
)
def test_a_column_that_never_varied_has_no_say(model: Any, dtype: Any) -> None:
    bags = make_bags(dtype=dtype)

    def with_column(value: float) -> list[Array]:
        return [np.column_stack([bag, np.full(len(bag), value, dtype)]) for bag in bags.X]

    # Means over several lengths leave rounding of 0.1, of which readouts made decisions of 1e15.
    decisions = model.fit(with_column(0.1), bags.y).decision_function(with_column(0.1))
    moved = model.decision_function(with_column(1.1))
    np.testing.assert_allclose(moved, decisions, atol=1e-5 if dtype == np.float32 else 1e-12)


@pytest.mark.parametrize("size", [1e25, 1e-25])
def test_squares_beyond_the_range_of_single_precision(size: float) -> None:
    X, y, _ = equal_bags(dtype=np.float32)
    model = AttentionClassifier(random_state=0)
    expected = model.fit(X, y).decision_function(X)
    scaled = np.float32(size) * X
    np.testing.assert_allclose(
        model.fit(scaled, y).decision_function(scaled), expected, rtol=0.02, atol=0.02
    )


def test_attention_without_any_score_is_uniform() -> None:
    X, y, _ = equal_bags()
    model = ElementwiseAttentionClassifier(nonlinearity="tanh", random_state=0).fit(0 * X, y)
    np.testing.assert_allclose(model.attention(0 * X), 1 / 6)


def test_memory_map_gives_the_same_result(tmp_path: Path) -> None:
    X, y, _ = equal_bags(dtype=np.float32)
    np.save(tmp_path / "X.npy", X)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    assert as_sequences(mapped)._mapped is not None
    writable = np.load(tmp_path / "X.npy", mmap_mode="c")
    assert as_sequences(writable)._mapped is None, "copy-on-write pages must not be dropped"
    expected = AttentionClassifier(random_state=0).fit(X, y).decision_function(X)
    model = AttentionClassifier(random_state=0).fit(mapped, y)
    np.testing.assert_array_equal(model.decision_function(mapped), expected)


# Fits a memory map in a process of its own and prints by how much its memory grew.
MEASURE = """
import resource, sys
import numpy as np
from sparsetoken import AttentionClassifier
X, y = np.load(sys.argv[1], mmap_mode="r"), np.arange(int(sys.argv[2])) % 2
AttentionClassifier(refine=True, tied=True, sharpness=1.0, ridge=0.01, max_iter=2).fit(X[:200], y[:200])  # imports
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
AttentionClassifier(refine=True, tied=True, sharpness=1.0, ridge=0.01, max_iter=2).fit(X, y).predict(X)
print(1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak of memory as Linux gives it")
def test_memory_map_is_never_all_in_memory(tmp_path: Path) -> None:
    shape = (6000, 50, 64)
    X = np.lib.format.open_memmap(tmp_path / "X.npy", "w+", np.float32, shape)
    rng = np.random.default_rng(0)
    for start in range(0, len(X), 500):
        X[start : start + 500] = rng.standard_normal((500, *shape[1:]), dtype=np.float32)
    X.flush()
    finished = subprocess.run(
        [sys.executable, "-c", MEASURE, str(tmp_path / "X.npy"), str(len(X))],
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(finished.stdout) < 0.3 * X.nbytes


def test_stages_read_the_data_three_times_and_the_readout_once_more() -> None:
    X, y, _ = equal_bags()
    passes = 0
    blocks = sequences.Sequences.blocks

    def counted(self: sequences.Sequences) -> Iterator[sequences.Block]:
        nonlocal passes
        passes += 1
        return blocks(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sequences.Sequences, "blocks", counted)
        AttentionClassifier(refine=False, sharpness=1.0, ridge=0.01).fit(X, y)
    assert passes == 7, (
        "and looks at the first block and at a few samples, and the fitted scores' spread"
    )


@given(st.lists(st.integers(1, 40), min_size=1, max_size=30), st.integers(1, 4000))
def test_blocks_hold_every_token_once(lengths: list[int], block_bytes: int) -> None:
    rng = np.random.default_rng(0)
    X = [rng.standard_normal((length, 3)) for length in lengths]
    whole = as_sequences(X)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sequences, "BLOCK_BYTES", block_bytes)
        for _ in range(2):  # the second time from the blocks that were kept
            blocks = list(whole.blocks())
            np.testing.assert_array_equal(
                np.concatenate([block.tokens for block in blocks]), np.concatenate(X)
            )
            assert [block.samples.start for block in blocks[1:]] == [
                block.samples.stop for block in blocks[:-1]
            ]
    for block in blocks:
        for within, sample in enumerate(range(block.samples.start, block.samples.stop)):
            start = block.starts[within]
            np.testing.assert_array_equal(
                block.tokens[start : start + block.lengths[within]], X[sample]
            )
        assert block.tokens.nbytes <= block_bytes or len(block.lengths) == 1


def test_taking_some_samples_reads_those() -> None:
    bags = make_bags(count=20)
    array, mask = bags.padded
    rows = np.array([3, 4, 11, 19])
    for whole in (as_sequences(bags.X), as_sequences(array, mask)):
        some = whole.take(rows).take(np.array([1, 3]))
        tokens = np.concatenate([block.tokens for block in some.blocks()])
        np.testing.assert_array_equal(tokens, np.concatenate([bags.X[4], bags.X[19]]))
        assert some.source_row(1) == 19


X, Y, _ = equal_bags(count=40)
BAD = X.copy()
BAD[17, 2, 1] = np.nan
ENDLESS = X.copy()
ENDLESS[0, 0, 0] = np.inf
LIST = list(X)
MASK = np.ones(X.shape[:2], dtype=bool)
EMPTY_BAG = MASK.copy()
EMPTY_BAG[5] = False
PARTLY = np.ma.MaskedArray(X, mask=np.zeros(X.shape, dtype=bool))
PARTLY[7, 1, 0] = np.ma.masked
BAD_INPUT = {
    "nan": ((BAD, Y), {}, "sample 17"),
    "inf in the first sample": ((ENDLESS, Y), {}, "sample 0"),
    "nan in a list": ((list(BAD), Y), {}, "sample 17"),
    "nan where weights are zero elsewhere": (
        (BAD, Y),
        {"sample_weight": np.r_[np.zeros(4), np.ones(36)]},
        "sample 17",
    ),
    "empty bag": (([*LIST[:5], LIST[5][:0], *LIST[6:]], Y), {}, "sample 5.*at least one token"),
    "empty by mask": ((X, Y), {"mask": EMPTY_BAG}, "sample 5.*at least one token"),
    "other d": (([*LIST[:9], LIST[9][:, :2], *LIST[10:]], Y), {}, "sample 9.*5, as in sample 0"),
    "not 2-D": (([*LIST[:3], LIST[3][0], *LIST[4:]], Y), {}, "sample 3"),
    "mask shape": ((X, Y), {"mask": MASK[:, :-1]}, r"mask.*\(40, 5\).*\(40, 6\)"),
    "mask values": ((X, Y), {"mask": 3 * MASK}, "mask.*True where"),
    "mask of a list": ((LIST, Y), {"mask": MASK}, "mask"),
    "mask of a table": ((X[:, 0], Y), {"mask": MASK}, "mask"),
    "masked table": ((np.ma.MaskedArray(X[:, 0], mask=X[:, 0] > 2), Y), {}, "mask"),
    "two masks": ((mask_tokens(X, MASK), Y), {"mask": MASK}, "mask"),
    "token masked in part": ((PARTLY, Y), {}, "sample 7"),
    "one class": ((X, np.ones(40)), {}, "one class"),
    "regression": ((X, np.linspace(0, 1, 40)), {}, "label"),
    "length of y": ((X, Y[:-1]), {}, "y = 39.*40"),
    "no y": ((X, None), {}, "y"),
    "four dimensions": ((X[None], Y), {}, "shape of X"),
    "no samples": (([], []), {}, "at least one sample"),
    "no tokens": ((X[:, :0], Y), {}, "at least one token"),
    "no dimension": ((X[:, :, :0], Y), {}, "at least one dimension"),
    "text": ((X.astype(str), Y), {}, "numbers"),
    "complex": ((X.astype(complex), Y), {}, "real numbers"),
    "weights shape": ((X, Y), {"sample_weight": np.ones(39)}, "sample_weight"),
    "negative weight": (
        (X, Y),
        {"sample_weight": np.where(np.arange(40) == 8, -1.0, 1.0)},
        "of sample 8",
    ),
    "a class without weight": ((X, Y), {"sample_weight": Y}, "class 0"),
}


@pytest.mark.parametrize("values", [[np.nan], [np.inf], [np.inf, -np.inf]], ids=str)
def test_what_is_not_finite_is_named_wherever_it_is(values: list[float]) -> None:
    bad = X.copy()
    bad[17, : len(values), 1] = values
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sequences, "BLOCK_BYTES", 1000)  # sample 17 is not in the first block
        with pytest.raises(ParameterError, match="sample 17"):
            AttentionClassifier().fit(bad, Y)


@pytest.mark.parametrize("case", BAD_INPUT)
@pytest.mark.parametrize("model", [AttentionClassifier(), PooledClassifier()], ids=repr)
def test_bad_input_is_named_and_leaves_nothing_half_fitted(model: Any, case: str) -> None:
    arguments, options, message = BAD_INPUT[case]
    fresh = type(model)()
    with pytest.raises(ValueError, match=message):
        fresh.fit(*arguments, **options)
    assert vars(fresh) == fresh.get_params()
    fitted = type(model)().fit(X, Y)
    before = dict(vars(fitted))
    with pytest.raises(ValueError, match=message):
        fitted.fit(*arguments, **options)
    assert vars(fitted) == before


@pytest.mark.parametrize(
    "model", [AttentionClassifier(), PooledClassifier(), PooledClassifier(pooling="max")], ids=repr
)
def test_bad_input_to_a_fitted_model(model: Any) -> None:
    model.fit(X, Y)
    with pytest.raises(ParameterError, match="sample 17"):
        model.predict(BAD)
    with pytest.raises(ParameterError, match=r"dimension of X's tokens = 3.*5, as in fit"):
        model.predict(X[:, :, :3])
    with pytest.raises(ValueError, match="features"):
        model.predict(X[:, 0, :3])
    if hasattr(model, "locate"):
        with pytest.raises(ParameterError, match="sample 17"):
            model.attention(BAD)
        with pytest.raises(ParameterError, match=r"k = 7.*6 tokens of sample 0"):
            model.locate(X, k=7)


def test_too_few_samples_for_the_split() -> None:
    few = np.r_[np.flatnonzero(Y == 0), np.flatnonzero(Y == 1)[:1]]
    with pytest.raises(ParameterError, match=r"split = 0.5.*both classes"):
        AttentionClassifier(split=0.5).fit(X[few], Y[few])


@pytest.mark.parametrize("split", [0.0, 1.0, 1.5])
def test_a_split_is_a_part_of_the_samples(split: float) -> None:
    with pytest.raises(ParameterError, match=rf"split = {split} .*in \(0, 1\)"):
        AttentionClassifier(split=split).fit(X, Y)


def test_vectorised_names_the_sample_of_another_length() -> None:
    odd = [*LIST[:30], LIST[30][:4], *LIST[31:]]
    with pytest.raises(ParameterError, match=r"length of sample 30 = 4.*expected 6"):
        VectorisedClassifier().fit(odd, Y)
    fitted = VectorisedClassifier().fit(X, Y)
    with pytest.raises(ParameterError, match=r"length of sample 0 = 5.*expected 6"):
        fitted.predict(X[:, :5])


@pytest.mark.parametrize(
    ("parameter", "value"),
    [
        ("heads", 0),
        ("refine", "yes"),
        ("tied", "no"),
        ("sharpness", -1.0),
        ("split", 1.0),
        ("ridge", -1e-3),
        ("loss", "absolute"),
        ("class_weight", "even"),
        ("class_weight", {5: 1.0}),
        ("max_iter", 0),
        ("tol", float("nan")),
        ("length", 0),
    ],
)
def test_bad_parameters_are_named(parameter: str, value: Any) -> None:
    with pytest.raises(ParameterError, match=parameter):
        AttentionClassifier(**{parameter: value}).fit(X, Y)


def test_other_bad_parameters() -> None:
    with pytest.raises(ParameterError, match=r"loss = 'hinge'.*refine=False"):
        AttentionClassifier(loss="hinge", refine=True).fit(X, Y)
    with pytest.raises(ParameterError, match="nonlinearity"):
        ElementwiseAttentionClassifier(nonlinearity="relu").fit(X, Y)
    with pytest.raises(ParameterError, match=r"columns of X = 5.*length = 2"):
        PooledClassifier(length=2).fit(X[:, 0], Y)
    with pytest.raises(ParameterError, match="transformer"):
        TokenWise(PooledClassifier()).fit(X)
    with pytest.raises(ParameterError, match="target = 9"):
        AttentionClassifier().fit(X, np.arange(40) % 3).attention(X, target=9)


@pytest.mark.parametrize("model", [AttentionClassifier(), PooledClassifier()], ids=repr)
def test_a_client_reads_nothing_of_what_is_in_memory(model: Any, tmp_path: Path) -> None:
    for data in (X, X[:, 0], list(X)):
        with pytest.raises(ParameterError, match="client = 3 is not valid: expected None unless X"):
            model.fit(data, Y, client=3)
    np.save(tmp_path / "tokens.npy", X)
    with pytest.raises(ParameterError, match=r"client = 3 is not valid: expected a distributed"):
        model.fit([tmp_path / "tokens.npy"], Y, client=3)


@pytest.mark.parametrize("make", [AttentionClassifier, AttentionRegressor, PooledClassifier])
def test_a_length_that_sequences_do_not_have_is_refused(make: Any) -> None:
    own = X.shape[1]
    ragged = [one[: own - row % 2] for row, one in enumerate(X)]
    for data in (X, list(X), mask_tokens(X, np.ones(X.shape[:2], bool)), ragged):
        with pytest.raises(ParameterError, match=f"length = {own + 1} is not valid: expected None"):
            make(length=own + 1).fit(data, Y)
    flat = X.reshape(len(X), -1)
    model = make(length=own).fit(X, Y)
    np.testing.assert_array_equal(model.predict(flat), make(length=own).fit(flat, Y).predict(X))
    assert len(model.predict(X[:, :2])) == len(X)  # other lengths are no matter once it is fitted
