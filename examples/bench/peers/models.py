"""The models, written once over a set of operations `ops` (ops_jax.py, ops_torch.py, ops_onnx.py,
ops_numpy.py have one each), and their weights and inputs, made of fixed seeds.

`data(workload)` gives two dicts of arrays, weights and inputs. Weights are in the order of the
variables of the workload's graph; dense weights are [in, out], filters [out, in, height, width],
images [batch, channels, height, width]. `result(workload, ops, weights, inputs)` is what a call
gives: the result, or the loss of a training step.
"""

import math

import numpy as np


def data(workload):
    make, _ = MODELS[workload.graph]
    return make(workload.lets)


def result(workload, ops, weights, inputs):
    _, forward = MODELS[workload.graph]
    return forward(ops, weights, inputs, workload.lets)


class Random:
    """Arrays of single precision from a seed."""

    def __init__(self, seed):
        self.generator = np.random.default_rng(seed)

    def normal(self, *shape, std=1.0):
        return self.generator.standard_normal(shape, dtype=np.float32) * np.float32(std)

    def below(self, limit, *shape):
        return self.generator.integers(0, limit, shape).astype(np.int32)


def zeros(*shape):
    return np.zeros(shape, np.float32)


def ones(*shape):
    return np.ones(shape, np.float32)


# Single operations


def gemm_data(lets):
    random = Random(1)
    m, k, n = lets["M"], lets["K"], lets["N"]
    return {}, {"a": random.normal(m, k), "b": random.normal(k, n)}


def gemm(ops, weights, inputs, lets):
    return ops.matmul(inputs["a"], inputs["b"])


def elementwise_data(lets):
    return {}, {"x": Random(2).normal(lets["N"])}


def elementwise(ops, weights, inputs, lets):
    x = inputs["x"]
    gelu = ops.gelu_tanh(ops.affine(x, 1.25, -0.5))
    return ops.add(ops.mul(gelu, ops.sigmoid(x)), x)


def softmax_data(lets):
    return {}, {"x": Random(3).normal(4096, 1024)}


def softmax(ops, weights, inputs, lets):
    return ops.softmax(inputs["x"])


def layernorm_data(lets):
    random = Random(3)
    weights = {"gain": random.normal(1024), "bias": random.normal(1024)}
    return weights, {"x": random.normal(4096, 1024)}


def layernorm(ops, weights, inputs, lets):
    return ops.layernorm(inputs["x"], weights["gain"], weights["bias"])


def sum_data(lets):
    return {}, {"x": Random(3).normal(4096, 4096)}


def sums(ops, weights, inputs, lets):
    return ops.sum(inputs["x"], lets["AXIS"])


def transpose_data(lets):
    return {}, {"x": Random(3).normal(2048, 2048)}


def transpose(ops, weights, inputs, lets):
    return ops.turned(inputs["x"])


# The MLP


def mlp_data(lets):
    random = Random(4)
    weights = {}
    for i, (rows, units) in enumerate([(784, 512), (512, 512), (512, 10)], 1):
        weights[f"w{i}"] = random.normal(rows, units, std=(2 / rows) ** 0.5)
        weights[f"b{i}"] = random.normal(units, std=0.01)
    batch = lets["B"]
    return weights, {"x": random.normal(batch, 784), "y": random.below(10, batch)}


def mlp(ops, weights, inputs, lets):
    h = ops.relu(ops.linear(inputs["x"], weights["w1"], weights["b1"]))
    h = ops.relu(ops.linear(h, weights["w2"], weights["b2"]))
    return ops.linear(h, weights["w3"], weights["b3"])


def mlp_loss(ops, weights, inputs, lets):
    return ops.xent(mlp(ops, weights, inputs, lets), inputs["y"])


# Transformers


class TransformerWeights(dict):
    """Weights by name, in the order of the calls."""

    def __init__(self, random):
        super().__init__()
        self.random = random

    def table(self, name, rows, width):
        self[name] = self.random.normal(rows, width, std=0.02)

    def dense(self, name, rows, units):
        self[f"{name}.w"] = self.random.normal(rows, units, std=0.05)
        self[f"{name}.b"] = self.random.normal(units, std=0.01)

    def norm(self, name, width):
        self[f"{name}.gain"] = ones(width)
        self[f"{name}.bias"] = zeros(width)

    def attention(self, layer, width):
        for part in ("q", "k", "v", "out"):
            self.dense(f"{layer}.{part}", width, width)

    def feed_forward(self, layer, width):
        self.dense(f"{layer}.up", width, 4 * width)
        self.dense(f"{layer}.down", 4 * width, width)


def dense(ops, weights, name, x):
    return ops.linear(x, weights[f"{name}.w"], weights[f"{name}.b"])


def norm(ops, weights, name, x):
    return ops.layernorm(x, weights[f"{name}.gain"], weights[f"{name}.bias"])


def attention(ops, weights, layer, x, heads, causal):
    q, k, v = (dense(ops, weights, f"{layer}.{part}", x) for part in ("q", "k", "v"))
    return dense(ops, weights, f"{layer}.out", ops.attention(q, k, v, heads, causal))


MINILM_LAYERS = 6


def minilm_data(lets):
    words, tokens, width = 30522, 128, 384
    random = Random(9)
    weights = TransformerWeights(random)
    weights.table("token", words, width)
    weights.table("position", 512, width)
    weights.norm("norm", width)
    for layer in range(MINILM_LAYERS):
        weights.attention(layer, width)
        weights.norm(f"{layer}.norm1", width)
        weights.feed_forward(layer, width)
        weights.norm(f"{layer}.norm2", width)
    return dict(weights), {"ids": random.below(words, 1, tokens)}


def minilm(ops, weights, inputs, lets):
    """An encoder as BERT: normalised after each part."""
    ids = inputs["ids"]
    h = ops.add(ops.embed(weights["token"], ids), ops.first(weights["position"], 128))
    h = norm(ops, weights, "norm", h)
    for layer in range(MINILM_LAYERS):
        h = ops.add(h, attention(ops, weights, layer, h, 12, causal=False))
        h = norm(ops, weights, f"{layer}.norm1", h)
        f = ops.gelu_erf(dense(ops, weights, f"{layer}.up", h))
        h = ops.add(h, dense(ops, weights, f"{layer}.down", f))
        h = norm(ops, weights, f"{layer}.norm2", h)
    return h


GPT_LAYERS = 4


def gpt_data(lets):
    words, batch, tokens, width = 4096, 8, 128, 256
    random = Random(10)
    weights = TransformerWeights(random)
    weights.table("token", words, width)
    weights.table("position", tokens, width)
    weights["head"] = random.normal(width, words, std=0.02)
    for layer in range(GPT_LAYERS):
        weights.norm(f"{layer}.norm1", width)
        weights.attention(layer, width)
        weights.norm(f"{layer}.norm2", width)
        weights.feed_forward(layer, width)
    weights.norm("norm", width)
    ids = random.below(words, batch, tokens + 1)
    return dict(weights), {"ids": ids[:, :-1].copy(), "y": ids[:, 1:].copy()}


def gpt(ops, weights, inputs, lets):
    """Normalised before each part; a position sees none after itself."""
    h = ops.add(ops.embed(weights["token"], inputs["ids"]), weights["position"])
    for layer in range(GPT_LAYERS):
        x = norm(ops, weights, f"{layer}.norm1", h)
        h = ops.add(h, attention(ops, weights, layer, x, 8, causal=True))
        x = norm(ops, weights, f"{layer}.norm2", h)
        f = ops.gelu_tanh(dense(ops, weights, f"{layer}.up", x))
        h = ops.add(h, dense(ops, weights, f"{layer}.down", f))
    h = norm(ops, weights, "norm", h)
    return ops.xent(ops.rows(ops.matmul(h, weights["head"])), ops.flat(inputs["y"]))


# The LSTM


def lstm_data(lets):
    words, units, steps, batch, samples = 10000, 512, 20, 20, 512
    random = Random(8)
    weights = {"w": random.normal(words, units, std=0.04), "b": zeros(words)}
    weights["table"] = random.normal(words, units, std=0.1)
    for layer in range(2):
        weights[f"wx{layer}"] = random.normal(units, 4 * units, std=0.04)
        weights[f"wh{layer}"] = random.normal(units, 4 * units, std=0.04)
        weights[f"b{layer}"] = zeros(4 * units)
    ids = random.below(words, batch, steps + 1)
    sample = random.generator.choice(words, samples, replace=False).astype(np.int32)
    return weights, {"ids": ids[:, :-1].copy(), "y": ids[:, 1:].copy(), "samples": sample}


def lstm_features(ops, weights, inputs):
    """`h` of the second layer at every step, a row for each: batch by batch."""
    if ops.loops:
        return ops.lstm_loop(weights, inputs["ids"])
    xs = ops.embed_steps(weights["table"], inputs["ids"])
    for layer in range(2):
        h = c = None
        out = []
        for x in xs:
            gates = ops.linear(x, weights[f"wx{layer}"], weights[f"b{layer}"])
            if h is not None:
                gates = ops.add(gates, ops.matmul(h, weights[f"wh{layer}"]))
            i, f, u, o = ops.split(gates, 4)
            new = ops.mul(ops.sigmoid(i), ops.tanh(u))
            c = new if c is None else ops.add(ops.mul(ops.sigmoid(f), c), new)
            h = ops.mul(ops.sigmoid(o), ops.tanh(c))
            out.append(h)
        xs = out
    return ops.stack_rows(xs)


def lstm_loss(ops, weights, inputs, lets):
    h = lstm_features(ops, weights, inputs)
    return ops.xent(ops.add(ops.matmul_t(h, weights["w"]), weights["b"]), ops.flat(inputs["y"]))


def lstm_sampled_loss(ops, weights, inputs, lets):
    """The softmax over the right word and the words given as samples."""
    h = lstm_features(ops, weights, inputs)
    w, b, sample, labels = weights["w"], weights["b"], inputs["samples"], ops.flat(inputs["y"])
    hit = ops.add(ops.dot_rows(h, ops.embed(w, labels)), ops.pick(b, labels))
    miss = ops.add(ops.matmul_t(h, ops.embed(w, sample)), ops.pick(b, sample))
    return ops.xent_first(hit, miss)


# Convolution networks


class Net:
    """Layers over `ops`. Their weights are numbered in the order of the calls; they are taken
    from `weights`, or made by `make(kind, shape)` and put there."""

    def __init__(self, ops, weights, make=None):
        self.ops, self.weights, self.make = ops, weights, make
        self.count = 0

    def weight(self, kind, *shape):
        name = f"{self.count:03d}.{kind}"
        self.count += 1
        if self.make:
            self.weights[name] = self.make(kind, shape)
        return self.weights[name]

    def conv(self, x, filters, size, stride=1, pad=None, bias=True):
        pad = size // 2 if pad is None else pad
        kernel = self.weight("filter", filters, self.ops.channels(x), size, size)
        bias = self.weight("bias", filters) if bias else None
        return self.ops.conv(x, kernel, bias, stride, pad)

    def conv_relu(self, x, filters, size, stride=1, pad=None):
        return self.ops.relu(self.conv(x, filters, size, stride, pad))

    def conv_norm(self, x, filters, size, stride=1):
        y = self.conv(x, filters, size, stride, bias=False)
        return self.ops.batch_norm(y, self.weight("gain", filters), self.weight("bias", filters))

    def linear(self, x, units):
        w = self.weight("w", self.ops.width(x), units)
        return self.ops.linear(x, w, self.weight("bias", units))

    def dense(self, x, units):
        return self.ops.relu(self.linear(x, units))

    def pool(self, x, size=2, stride=2, pad=0):
        return self.ops.max_pool(x, size, stride, pad)


def lenet(net, x):
    x = net.pool(net.conv_relu(x, 32, 5))
    x = net.pool(net.conv_relu(x, 64, 5))
    return net.linear(net.dense(net.ops.flatten(x), 512), 10)


def alexnet(net, x):
    x = net.pool(net.conv_relu(x, 64, 11, 4, 2), 3, 2)
    x = net.pool(net.conv_relu(x, 192, 5), 3, 2)
    x = net.conv_relu(net.conv_relu(net.conv_relu(x, 384, 3), 256, 3), 256, 3)
    x = net.ops.flatten(net.pool(x, 3, 2))
    return net.linear(net.dense(net.dense(x, 4096), 4096), 1000)


def vgga(net, x):
    for filters, convolutions in [(64, 1), (128, 1), (256, 2), (512, 2), (512, 2)]:
        for _ in range(convolutions):
            x = net.conv_relu(x, filters, 3)
        x = net.pool(x)
    x = net.ops.flatten(x)
    return net.linear(net.dense(net.dense(x, 4096), 4096), 1000)


def inception(net, x, f1, r3, f3, r5, f5, pool):
    a = net.conv_relu(x, f1, 1)
    b = net.conv_relu(net.conv_relu(x, r3, 1), f3, 3)
    c = net.conv_relu(net.conv_relu(x, r5, 1), f5, 5)
    d = net.conv_relu(net.pool(x, 3, 1, 1), pool, 1)
    return net.ops.concat([a, b, c, d])


def googlenet(net, x):
    x = net.pool(net.conv_relu(x, 64, 7, 2), 3, 2, 1)
    x = net.pool(net.conv_relu(net.conv_relu(x, 64, 1), 192, 3), 3, 2, 1)
    stages = [
        [(64, 96, 128, 16, 32, 32), (128, 128, 192, 32, 96, 64)],
        [
            (192, 96, 208, 16, 48, 64),
            (160, 112, 224, 24, 64, 64),
            (128, 128, 256, 24, 64, 64),
            (112, 144, 288, 32, 64, 64),
            (256, 160, 320, 32, 128, 128),
        ],
        [(256, 160, 320, 32, 128, 128), (384, 192, 384, 48, 128, 128)],
    ]
    for number, stage in enumerate(stages):
        if number > 0:
            x = net.pool(x, 3, 2, 1)
        for filters in stage:
            x = inception(net, x, *filters)
    return net.linear(net.ops.mean_pixels(x), 1000)


def resnet50(net, x):
    ops = net.ops
    x = net.pool(ops.relu(net.conv_norm(x, 64, 7, 2)), 3, 2, 1)
    for stage, (width, blocks) in enumerate([(64, 3), (128, 4), (256, 6), (512, 3)]):
        for block in range(blocks):
            stride = 2 if block == 0 and stage > 0 else 1
            h = ops.relu(net.conv_norm(x, width, 1))
            h = ops.relu(net.conv_norm(h, width, 3, stride))
            h = net.conv_norm(h, 4 * width, 1)
            shortcut = net.conv_norm(x, 4 * width, 1, stride) if block == 0 else x
            x = ops.relu(ops.add(h, shortcut))
    return net.linear(ops.mean_pixels(x), 1000)


class Shapes:
    """Operations on shapes alone, to find the weights of a net."""

    def channels(self, x):
        return x[1]

    def width(self, x):
        return x[1]

    def relu(self, x):
        return x

    def add(self, x, y):
        return x

    def batch_norm(self, x, gain, bias):
        return x

    def conv(self, x, kernel, bias, stride, pad):
        return (x[0], len(kernel), *((d + 2 * pad - kernel.shape[2]) // stride + 1 for d in x[2:]))

    def max_pool(self, x, size, stride, pad):
        return x[:2] + tuple((d + 2 * pad - size) // stride + 1 for d in x[2:])

    def mean_pixels(self, x):
        return x[:2]

    def flatten(self, x):
        return (x[0], math.prod(x[1:]))

    def concat(self, xs):
        return (xs[0][0], sum(x[1] for x in xs), *xs[0][2:])

    def linear(self, x, w, b):
        return (x[0], w.shape[1])


def convnet(model, batch, channels, size, classes):
    """A pair for `MODELS`: how the data is made, and the loss."""

    def make(lets):
        random = Random(5)

        def weight(kind, shape):
            if kind == "filter":
                return random.normal(*shape, std=(2 / math.prod(shape[1:])) ** 0.5)
            if kind == "w":
                return random.normal(*shape, std=(2 / shape[0]) ** 0.5)
            return ones(*shape) if kind == "gain" else zeros(*shape)

        weights = {}
        image = (batch, channels, size, size)
        model(Net(Shapes(), weights, weight), image)
        return weights, {"img": random.normal(*image), "y": random.below(classes, batch)}

    def loss(ops, weights, inputs, lets):
        return ops.xent(model(Net(ops, weights), inputs["img"]), inputs["y"])

    return make, loss


# By the name of the graph.
MODELS = {
    "gemm": (gemm_data, gemm),
    "elementwise": (elementwise_data, elementwise),
    "softmax": (softmax_data, softmax),
    "layernorm": (layernorm_data, layernorm),
    "sum": (sum_data, sums),
    "transpose": (transpose_data, transpose),
    "mlp": (mlp_data, mlp),
    "mlp_sgd": (mlp_data, mlp_loss),
    "mlp_adam": (mlp_data, mlp_loss),
    "minilm": (minilm_data, minilm),
    "gpt": (gpt_data, gpt),
    "lstm": (lstm_data, lstm_loss),
    "lstm_sampled": (lstm_data, lstm_sampled_loss),
    "lenet": convnet(lenet, 64, 1, 28, 10),
    "alexnet": convnet(alexnet, 16, 3, 224, 1000),
    "vgga": convnet(vgga, 16, 3, 224, 1000),
    "resnet50": convnet(resnet50, 8, 3, 224, 1000),
    "googlenet": convnet(googlenet, 16, 3, 224, 1000),
}
