"""The operations of models.py as nodes of an ONNX graph: `build` makes a model of a workload that
is only run, with its weights as initializers."""

import math

import numpy as np
from onnx import TensorProto, helper, numpy_helper

import models

OPSET = 20


class Value:
    def __init__(self, name, shape):
        self.name, self.shape = name, tuple(shape)


class Ops:
    def __init__(self):
        self.nodes, self.initializers = [], []

    def node(self, op, operands, shape, **attributes):
        out = f"t{len(self.nodes)}"
        names = [v.name for v in operands]
        self.nodes.append(helper.make_node(op, names, [out], **attributes))
        return Value(out, shape)

    def constant(self, value, name=None):
        name = name or f"c{len(self.initializers)}"
        value = np.asarray(value)
        self.initializers.append(numpy_helper.from_array(value, name))
        return Value(name, value.shape)

    def integers(self, *values):
        return self.constant(np.array(values, np.int64))

    def matmul(self, a, b):
        return self.node("MatMul", [a, b], a.shape[:-1] + b.shape[-1:])

    def add(self, x, y):
        return self.node("Add", [x, y], np.broadcast_shapes(x.shape, y.shape))

    def mul(self, x, y):
        return self.node("Mul", [x, y], np.broadcast_shapes(x.shape, y.shape))

    def affine(self, x, scale, shift):
        scaled = self.mul(x, self.constant(np.float32(scale)))
        return self.add(scaled, self.constant(np.float32(shift)))

    def relu(self, x):
        return self.node("Relu", [x], x.shape)

    def sigmoid(self, x):
        return self.node("Sigmoid", [x], x.shape)

    def gelu_tanh(self, x):
        return self.node("Gelu", [x], x.shape, approximate="tanh")

    def gelu_erf(self, x):
        return self.node("Gelu", [x], x.shape)

    def softmax(self, x):
        return self.node("Softmax", [x], x.shape, axis=-1)

    def layernorm(self, x, gain, bias):
        operands = [x, gain, bias]
        return self.node("LayerNormalization", operands, x.shape, axis=-1, epsilon=1e-5)

    def sum(self, x, axis):
        shape = [d for i, d in enumerate(x.shape) if i != axis]
        return self.node("ReduceSum", [x, self.integers(axis)], shape, keepdims=0)

    def linear(self, x, w, b):
        if len(x.shape) == 2:
            return self.node("Gemm", [x, w, b], (x.shape[0], w.shape[1]))
        return self.add(self.matmul(x, w), b)

    def embed(self, table, ids):
        return self.node("Gather", [table, ids], ids.shape + table.shape[1:], axis=0)

    def first(self, table, count):
        operands = [table, self.integers(0), self.integers(count), self.integers(0)]
        return self.node("Slice", operands, (count,) + table.shape[1:])

    def transpose(self, x, order):
        return self.node("Transpose", [x], [x.shape[i] for i in order], perm=order)

    def turned(self, x):
        return self.transpose(x, (1, 0))

    def reshape(self, x, *shape):
        return self.node("Reshape", [x, self.integers(*shape)], shape)

    def attention(self, q, k, v, heads, causal):
        assert not causal, "no model that is only run masks its attention"
        batch, steps, width = q.shape
        q, k, v = (self.reshape(t, batch, steps, heads, width // heads) for t in (q, k, v))
        q, v = self.transpose(q, (0, 2, 1, 3)), self.transpose(v, (0, 2, 1, 3))
        k = self.transpose(k, (0, 2, 3, 1))
        scale = self.constant(np.float32(1 / math.sqrt(width // heads)))
        probabilities = self.softmax(self.mul(self.matmul(q, k), scale))
        y = self.transpose(self.matmul(probabilities, v), (0, 2, 1, 3))
        return self.reshape(y, batch, steps, width)


def build(workload):
    """The model, and what it is fed by name."""
    weights, inputs = models.data(workload)
    ops = Ops()
    result = models.result(
        workload,
        ops,
        {name: ops.constant(value, name) for name, value in weights.items()},
        {name: Value(f"in.{name}", value.shape) for name, value in inputs.items()},
    )
    used = {name for node in ops.nodes for name in node.input}
    feeds = {f"in.{name}": v for name, v in inputs.items() if f"in.{name}" in used}
    elements = {"float32": TensorProto.FLOAT, "int32": TensorProto.INT32}
    graph = helper.make_graph(
        ops.nodes,
        workload.name,
        [
            helper.make_tensor_value_info(name, elements[str(v.dtype)], v.shape)
            for name, v in feeds.items()
        ],
        [helper.make_tensor_value_info(result.name, TensorProto.FLOAT, result.shape)],
        ops.initializers,
    )
    opset = helper.make_opsetid("", OPSET)
    return helper.make_model(graph, opset_imports=[opset], ir_version=9), feeds
