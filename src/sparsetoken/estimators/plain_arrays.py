"""A fitted classifier with attention as plain arrays, for use without this package."""

from pathlib import Path
from typing import Any

import numpy as np

from sparsetoken import validation
from sparsetoken.arrays import Array
from sparsetoken.validation import ParameterError

__all__ = ["write_export"]

# What an .onnx graph calls the extremes over tokens that a model may read beside its attention.
_EXTREMES = {"max": "ReduceMax", "min": "ReduceMin"}


def write_export(arrays: dict[str, Array], path: Any) -> None:
    """Write the arrays of `export()` to an .npz or, with the package onnx, to an .onnx file."""
    target = validation.path("path", path)
    if target.suffix == ".npz":
        np.savez(target, allow_pickle=False, **arrays)
    elif target.suffix == ".onnx":
        _write_onnx(arrays, target)
    else:
        raise ParameterError("path", str(path), "a name that ends in .npz or .onnx")


def _write_onnx(arrays: dict[str, Array], target: Path) -> None:
    """Write a graph from one sequence, `tokens` (L, d), to its `decision` (problems,)."""
    try:
        import onnx
        from onnx import helper
    except ImportError:
        raise ImportError("an .onnx file needs the package onnx: pip install onnx") from None
    problems, heads, d = arrays["queries"].shape
    number = onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        _nodes([name for name in _EXTREMES if f"{name}_weights" in arrays]),
        "sparsetoken",
        [helper.make_tensor_value_info("tokens", number, ["L", d])],
        [
            helper.make_tensor_value_info("decision", number, [problems]),
            helper.make_tensor_value_info("attention", number, ["L", problems * heads]),
        ],
        initializer=_constants(arrays),
    )
    operators = [helper.make_opsetid("", 17)]
    # The package's own, newest format is one that runtimes of the same day refuse to load.
    oldest = helper.find_min_ir_version_for(operators)
    model = helper.make_model(graph, opset_imports=operators, ir_version=oldest)
    onnx.checker.check_model(model)
    onnx.save(model, str(target))


def _constants(arrays: dict[str, Array]) -> list[Any]:
    """Return the graph's constants: heads side by side, in single precision, and axes."""
    from onnx import numpy_helper

    problems, heads, d = arrays["queries"].shape
    numbers = {
        "queries": arrays["queries"].reshape(-1, d).T,
        "query_offsets": arrays["query_offsets"].reshape(1, -1),
        "weights": arrays["weights"].reshape(-1, d).T,
        "weight_offsets": arrays["weight_offsets"].reshape(1, -1),
        "bias": arrays["bias"],
    }
    for name in _EXTREMES:
        if f"{name}_weights" in arrays:
            numbers[f"{name}_weights"] = arrays[f"{name}_weights"].T
    places = {"token_axis": [0], "head_axis": [1], "shape": [problems, heads]}
    return [
        *(
            numpy_helper.from_array(np.asarray(value, np.float32), key)
            for key, value in numbers.items()
        ),
        *(numpy_helper.from_array(np.array(value), key) for key, value in places.items()),
    ]


def _nodes(extremes: list[str]) -> list[Any]:
    """Return the graph's operations, from `tokens` to `decision`."""
    from onnx.helper import make_node

    nodes = [
        make_node("MatMul", ["tokens", "queries"], ["products"]),
        make_node("Add", ["products", "query_offsets"], ["scores"]),
        make_node("Softmax", ["scores"], ["attention"], axis=0),
        make_node("MatMul", ["tokens", "weights"], ["read"]),
        make_node("Add", ["read", "weight_offsets"], ["values"]),
        make_node("Mul", ["attention", "values"], ["parts"]),
        make_node("ReduceSum", ["parts", "token_axis"], ["pooled"], keepdims=0),
        make_node("Reshape", ["pooled", "shape"], ["by_head"]),
        make_node("ReduceSum", ["by_head", "head_axis"], ["summed"], keepdims=0),
    ]
    total = "summed"
    for name in extremes:
        nodes += [
            make_node(_EXTREMES[name], ["tokens"], [f"{name}_tokens"], axes=[0], keepdims=0),
            make_node("MatMul", [f"{name}_tokens", f"{name}_weights"], [f"{name}_read"]),
            make_node("Add", [total, f"{name}_read"], [f"with_{name}"]),
        ]
        total = f"with_{name}"
    return [*nodes, make_node("Add", [total, "bias"], ["decision"])]
