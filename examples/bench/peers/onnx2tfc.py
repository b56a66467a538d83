"""Writes an ONNX model of the onnx package's light models as a graph of tfc. It knows the operators
that these models have, and nothing more."""

import numpy as np
import onnx
from onnx import helper, numpy_helper


def convert(model, name):
    """The text of the graph, and its weights by the names they have there."""
    return Converter(model.graph).convert(model, name)


class Converter:
    def __init__(self, graph):
        self.graph = graph
        # Arrays that are known, and those of them that became variables.
        self.arrays = {i.name: numpy_helper.to_array(i) for i in graph.initializer}
        self.variables, self.weights = {}, {}
        self.names = {}

    def name(self, value):
        """What a value of the ONNX graph is called in ours."""
        return self.names.setdefault(value, f"t{len(self.names)}")

    def operand(self, value):
        if value not in self.arrays:
            return self.name(value)
        if value not in self.variables:
            self.variables[value] = f"w{len(self.variables)}"
            self.weights[self.variables[value]] = self.arrays[value].astype(np.float32)
        return self.variables[value]

    def convert(self, model, name):
        inferred = onnx.shape_inference.infer_shapes(model).graph.value_info
        self.shapes = {v.name: sizes(v) for v in inferred}
        (x,) = self.graph.input
        self.names[x.name] = "x"
        self.input_shape = sizes(x)
        body = []
        for node in self.graph.node:
            attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
            expression = getattr(self, node.op_type)(node.input, node.output[0], attributes)
            if expression is not None:
                body.append(f"  {self.name(node.output[0])} = {expression}")
        lines = [f"graph {name}", "use nn", ""]
        lines += [f"var {w}: f32{list(v.shape)} = zeros" for w, v in self.weights.items()]
        lines += ["", f"entry run(x: f32{self.input_shape}) -> (y) {{", *body]
        lines += [f"  return {self.name(self.graph.output[0].name)}", "}", ""]
        return "\n".join(lines), self.weights

    # One method for each operator: the expression, or None where the result is an array that is
    # known.

    def Conv(self, inputs, output, attributes):
        x, kernel, *bias = map(self.operand, inputs)
        dilation = list(attributes.get("dilations", [1, 1]))
        groups = attributes.get("group", 1)
        y = f"conv2d({x}, {kernel}, {windows(attributes)}, dilation: {dilation}, groups: {groups})"
        return f"{y} + reshape({bias[0]}, [{self.arrays[inputs[2]].size}, 1, 1])" if bias else y

    def MaxPool(self, inputs, output, attributes):
        return self.pool("max_pool", inputs, attributes)

    def AveragePool(self, inputs, output, attributes):
        return self.pool("avg_pool", inputs, attributes)

    def pool(self, op, inputs, attributes):
        window = list(attributes["kernel_shape"])
        return f"{op}({self.operand(inputs[0])}, window: {window}, {windows(attributes)})"

    def GlobalAveragePool(self, inputs, output, attributes):
        return f"mean({self.operand(inputs[0])}, axes: [2, 3], keep: true)"

    def BatchNormalization(self, inputs, output, attributes):
        operands = ", ".join(map(self.operand, inputs))
        return f"nn.batch_norm({operands}, eps: {attributes.get('epsilon', 1e-5):.9g})"

    def LRN(self, inputs, output, attributes):
        size = attributes["size"]
        settings = {
            "radius": size // 2,
            "k": attributes.get("bias", 1.0),
            "alpha": attributes.get("alpha", 1e-4) / size,
            "beta": attributes.get("beta", 0.75),
        }
        settings = ", ".join(f"{k}: {v:.9g}" for k, v in settings.items())
        return f"nn.lrn({self.operand(inputs[0])}, {settings})"

    def Relu(self, inputs, output, attributes):
        return f"relu({self.operand(inputs[0])})"

    def Dropout(self, inputs, output, attributes):
        return self.operand(inputs[0])

    def Softmax(self, inputs, output, attributes):
        return f"nn.softmax(reshape({self.operand(inputs[0])}, [{self.input_shape[0]}, _]))"

    def Concat(self, inputs, output, attributes):
        operands = ", ".join(map(self.operand, inputs))
        return f"concat({operands}, axis: {attributes['axis']})"

    def Sum(self, inputs, output, attributes):
        return " + ".join(map(self.operand, inputs))

    Add = Sum

    def Mul(self, inputs, output, attributes):
        return " * ".join(map(self.operand, inputs))

    def Gemm(self, inputs, output, attributes):
        plain = attributes.get("alpha", 1) == attributes.get("beta", 1) == 1
        assert plain and not attributes.get("transA"), "a product with factors"
        x, w, bias = map(self.operand, inputs)
        turned = ", trans_b: true" if attributes.get("transB") else ""
        return f"matmul({x}, {w}{turned}) + {bias}"

    def Transpose(self, inputs, output, attributes):
        return f"transpose({self.operand(inputs[0])}, perm: {list(attributes['perm'])})"

    def Unsqueeze(self, inputs, output, attributes):
        axes = attributes.get("axes") or self.arrays[inputs[1]].tolist()
        self.arrays[output] = np.expand_dims(self.arrays[inputs[0]], tuple(axes))

    def Reshape(self, inputs, output, attributes):
        x, shape = inputs[0], self.arrays[inputs[1]].tolist()
        shape = [self.shapes[x][axis] if d == 0 else d for axis, d in enumerate(shape)]
        if x in self.arrays:
            self.arrays[output] = self.arrays[x].reshape(shape)
            return None
        shape = ", ".join("_" if d == -1 else str(d) for d in shape)
        return f"reshape({self.operand(x)}, [{shape}])"


def sizes(value):
    return [d.dim_value for d in value.type.tensor_type.shape.dim]


def windows(attributes):
    top, left, bottom, right = attributes.get("pads", [0, 0, 0, 0])
    stride = list(attributes.get("strides", [1, 1]))
    return f"stride: {stride}, pad: {[top, bottom, left, right]}"
