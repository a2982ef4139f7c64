"""A fitted classifier with attention as plain arrays, for use without this package."""

from pathlib import Path
from typing import Any

import numpy as np

from sparsetoken.arrays import Array
from sparsetoken.validation import ParameterError

__all__ = ["write_export"]


def write_export(arrays: dict[str, Array], path: Any) -> None:
    """Write the arrays of `export()` to an .npz or, with the package onnx, to an .onnx file."""
    target = Path(path)
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
        from onnx import TensorProto, helper, numpy_helper
    except ImportError:
        raise ImportError("an .onnx file needs the package onnx: pip install onnx") from None
    problems, heads, d = arrays["queries"].shape

    def constant(name: str, values: Array) -> Any:
        return numpy_helper.from_array(np.asarray(values, dtype=np.float32), name)

    constants = [
        constant("queries", arrays["queries"].reshape(-1, d).T),
        constant("query_offsets", arrays["query_offsets"].reshape(1, -1)),
        constant("weights", arrays["weights"].reshape(-1, d).T),
        constant("weight_offsets", arrays["weight_offsets"].reshape(1, -1)),
        constant("bias", arrays["bias"]),
        numpy_helper.from_array(np.array([0]), "token_axis"),
        numpy_helper.from_array(np.array([1]), "head_axis"),
        numpy_helper.from_array(np.array([problems, heads]), "shape"),
    ]
    nodes = [
        helper.make_node("MatMul", ["tokens", "queries"], ["products"]),
        helper.make_node("Add", ["products", "query_offsets"], ["scores"]),
        helper.make_node("Softmax", ["scores"], ["attention"], axis=0),
        helper.make_node("MatMul", ["tokens", "weights"], ["read"]),
        helper.make_node("Add", ["read", "weight_offsets"], ["values"]),
        helper.make_node("Mul", ["attention", "values"], ["parts"]),
        helper.make_node("ReduceSum", ["parts", "token_axis"], ["pooled"], keepdims=0),
        helper.make_node("Reshape", ["pooled", "shape"], ["by_head"]),
        helper.make_node("ReduceSum", ["by_head", "head_axis"], ["summed"], keepdims=0),
    ]
    total = "summed"
    for name, reduce in (("max", "ReduceMax"), ("min", "ReduceMin")):
        if f"{name}_weights" in arrays:
            constants.append(constant(f"{name}_weights", arrays[f"{name}_weights"].T))
            nodes += [
                helper.make_node(reduce, ["tokens"], [f"{name}_tokens"], axes=[0], keepdims=0),
                helper.make_node("MatMul", [f"{name}_tokens", f"{name}_weights"], [f"{name}_read"]),
                helper.make_node("Add", [total, f"{name}_read"], [f"with_{name}"]),
            ]
            total = f"with_{name}"
    nodes.append(helper.make_node("Add", [total, "bias"], ["decision"]))
    graph = helper.make_graph(
        nodes,
        "sparsetoken",
        [helper.make_tensor_value_info("tokens", TensorProto.FLOAT, ["L", d])],
        [
            helper.make_tensor_value_info("decision", TensorProto.FLOAT, [problems]),
            helper.make_tensor_value_info("attention", TensorProto.FLOAT, ["L", problems * heads]),
        ],
        initializer=constants,
    )
    operators = [helper.make_opsetid("", 17)]
    # The package's own, newest format is one that runtimes of the same day refuse to load.
    oldest = helper.find_min_ir_version_for(operators)
    model = helper.make_model(graph, opset_imports=operators, ir_version=oldest)
    onnx.checker.check_model(model)
    onnx.save(model, str(target))
