"""The "light" models of the onnx package: well-known networks whose weights are left out. Here they
get random ones of a fixed seed; constant weights would let a compiler compute less."""

import os

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper


def build(workload):
    """The model, what it is fed by name, and its result by ONNX Runtime."""
    data = os.path.join(os.path.dirname(onnx.__file__), "backend/test/data/light")
    model = onnx.load(os.path.join(data, f"{workload.name}.onnx"))
    random = np.random.default_rng(6)
    fill_weights(model.graph, random)
    model.ir_version = max(model.ir_version, 4)  # from then on weights need not be inputs
    (x,) = model.graph.input
    shape = [d.dim_value for d in x.type.tensor_type.shape.dim]
    feeds = {x.name: random.standard_normal(shape).astype(np.float32)}
    soften(model, feeds)
    return model, feeds, run(model, feeds, model.graph.output[0].name)


def run(model, feeds, output):
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    return session.run([output], feeds)[0]


def fill_weights(graph, random):
    """Puts an initializer in the place of each `ConstantOfShape`."""
    initializers = {i.name: numpy_helper.to_array(i) for i in graph.initializer}
    weights, nodes = [], []
    for node in graph.node:
        if node.op_type == "ConstantOfShape" and node.input[0] in initializers:
            shape = tuple(int(d) for d in initializers[node.input[0]])
            weight = draw(random, shape, *user(graph, node.output[0]))
            weights.append(numpy_helper.from_array(weight.astype(np.float32), node.output[0]))
        else:
            nodes.append(node)
    used = {name for node in nodes for name in node.input}
    weights += [i for i in graph.initializer if i.name in used]
    known = {w.name for w in weights}
    inputs = [i for i in graph.input if i.name in used and i.name not in known]
    for field, items in [("node", nodes), ("initializer", weights), ("input", inputs)]:
        del getattr(graph, field)[:]
        getattr(graph, field).extend(items)


def user(graph, name):
    """The op that uses a value, through reshapes, and as which operand."""
    for node in graph.node:
        if name in node.input:
            if node.op_type in ("Unsqueeze", "Reshape"):
                return user(graph, node.output[0])
            return node.op_type, list(node.input).index(name)
    return "", 0


def draw(random, shape, op, operand):
    gain_or_variance = op == "Mul" or (op == "BatchNormalization" and operand in (1, 4))
    if gain_or_variance:
        return random.uniform(0.5, 1.5, shape)
    if len(shape) >= 2 and op != "BatchNormalization":
        return random.standard_normal(shape) * (2 / np.prod(shape[1:])) ** 0.5
    return random.standard_normal(shape) * 0.1


def soften(model, feeds):
    """Scales the last product so that logits stay within -5 and 5: otherwise one probability
    would be 1 and the others 0, whatever the network does."""
    graph = model.graph
    last = graph.node[-1]
    gemm = next((n for n in graph.node if n.op_type == "Gemm" and n.output[0] in last.input), None)
    if last.op_type != "Softmax" or gemm is None:
        return
    probe = onnx.ModelProto()
    probe.CopyFrom(model)
    logits = helper.make_tensor_value_info(gemm.output[0], TensorProto.FLOAT, None)
    probe.graph.output.append(logits)
    scale = np.float32(5 / np.abs(run(probe, feeds, gemm.output[0])).max())
    for weight in graph.initializer:
        if weight.name in gemm.input[1:]:
            scaled = numpy_helper.to_array(weight) * scale
            weight.CopyFrom(numpy_helper.from_array(scaled, weight.name))
