"""What is timed: the workloads with their goals, and which peers take which.

A row names the workload (files, records and the globs of the command line use this name), its
title in the table, its goal (tfc's time over that of the best peer, on two threads), its kind,
its graph in graphs/, and the values of the graph's top-level `let`s, which are the sizes that
models.py makes weights and inputs of.

Kinds: `infer` gives a result; `sgd` and `adam` are a step of training, which gives the loss
before the step and changes the weights; `light` is a model of the onnx package.

Keep a row on one line: compiler/tests/peers.rs reads them.
"""

from dataclasses import dataclass, field
from fnmatch import fnmatch


@dataclass(frozen=True, eq=False)
class Workload:
    name: str
    title: str
    goal: float
    kind: str
    graph: str = ""  # a light model's is made by onnx2tfc.py
    lets: dict = field(default_factory=dict)

    @property
    def trains(self):
        return self.kind in ("sgd", "adam")

    @property
    def is_lstm(self):
        return self.graph.startswith("lstm")

    @property
    def is_convnet(self):
        return self.graph in ("lenet", "alexnet", "vgga", "resnet50", "googlenet")


# fmt: off
ALL = [
    Workload("gemm_256", "gemm 256", 0.95, "infer", "gemm", {"M": 256, "K": 256, "N": 256}),
    Workload("gemm_512", "gemm 512", 0.95, "infer", "gemm", {"M": 512, "K": 512, "N": 512}),
    Workload("gemm_1024", "gemm 1024", 0.95, "infer", "gemm", {"M": 1024, "K": 1024, "N": 1024}),
    Workload("gemm_2048", "gemm 2048", 0.95, "infer", "gemm", {"M": 2048, "K": 2048, "N": 2048}),
    Workload("gemm_1x1024x4096", "gemm 1x1024x4096", 0.95, "infer", "gemm", {"M": 1, "K": 1024, "N": 4096}),
    Workload("gemm_64x784x512", "gemm 64x784x512", 0.95, "infer", "gemm", {"M": 64, "K": 784, "N": 512}),
    Workload("ew_64k", "elementwise, 64 K", 0.8, "infer", "elementwise", {"N": 65536}),
    Workload("ew_16m", "elementwise, 16 M", 0.8, "infer", "elementwise", {"N": 16777216}),
    Workload("softmax_4096x1024", "softmax 4096x1024", 0.8, "infer", "softmax"),
    Workload("layernorm_4096x1024", "layer norm 4096x1024", 0.8, "infer", "layernorm"),
    Workload("sum0_4096x4096", "sum of 4096x4096 over axis 0", 0.9, "infer", "sum", {"AXIS": 0}),
    Workload("sum1_4096x4096", "sum of 4096x4096 over axis 1", 0.9, "infer", "sum", {"AXIS": 1}),
    Workload("transpose_2048", "transpose 2048x2048", 0.9, "infer", "transpose"),
    Workload("mlp_infer_b1", "MLP inference, batch 1", 0.9, "infer", "mlp", {"B": 1}),
    Workload("mlp_infer_b64", "MLP inference, batch 64", 0.9, "infer", "mlp", {"B": 64}),
    Workload("mlp_sgd_b64", "MLP training, SGD, batch 64", 0.7, "sgd", "mlp_sgd", {"B": 64}),
    Workload("mlp_adam_b64", "MLP training, Adam, batch 64", 0.7, "adam", "mlp_adam", {"B": 64}),
    Workload("minilm_infer_b1s128", "MiniLM inference, 128 tokens", 0.9, "infer", "minilm"),
    Workload("gpt_adam_b8s128", "GPT training, Adam, 8x128 tokens", 0.85, "adam", "gpt"),
    Workload("lstm_sgd", "LSTM training", 0.85, "sgd", "lstm"),
    Workload("lstm_sampled_sgd", "LSTM training, sampled softmax", 0.85, "sgd", "lstm_sampled"),
    Workload("lenet_sgd_b64", "LeNet training, batch 64", 0.9, "sgd", "lenet"),
    Workload("alexnet_sgd_b16", "AlexNet training, batch 16", 0.9, "sgd", "alexnet"),
    Workload("vgga_sgd_b16", "VGG-A training, batch 16", 0.9, "sgd", "vgga"),
    Workload("resnet50_sgd_b8", "ResNet-50 training, batch 8", 0.9, "sgd", "resnet50"),
    Workload("googlenet_sgd_b16", "GoogLeNet training, batch 16", 0.9, "sgd", "googlenet"),
    Workload("light_bvlc_alexnet", "AlexNet", 0.95, "light"),
    Workload("light_densenet121", "DenseNet-121", 0.95, "light"),
    Workload("light_inception_v1", "Inception v1", 0.95, "light"),
    Workload("light_inception_v2", "Inception v2", 0.95, "light"),
    Workload("light_resnet50", "ResNet-50", 0.95, "light"),
    Workload("light_shufflenet", "ShuffleNet", 0.95, "light"),
    Workload("light_squeezenet", "SqueezeNet", 0.95, "light"),
    Workload("light_vgg19", "VGG-19", 0.95, "light"),
    Workload("light_zfnet512", "ZFNet", 0.95, "light"),
]
# fmt: on

BY_NAME = {w.name: w for w in ALL}

# The rates of all programs. Deep nets without normalisation diverge at 0.01.
RATES = {"alexnet_sgd_b16": 0.001, "vgga_sgd_b16": 0.001}
SGD_RATE = 0.01
ADAM = {"lr": 1e-3, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8}

# What a peer is called in the table, and what pip installs for it.
PEERS = {
    "ort": ("ONNX Runtime", ["onnx", "onnxruntime"]),
    "ov": ("OpenVINO", ["onnx", "openvino"]),
    "jax": ("JAX", ["jax"]),
    "torch": ("PyTorch", ["torch"]),
    "torchc": ("PyTorch, compiled", ["torch"]),
    "iree": ("IREE", ["jax", "onnx", "iree-base-compiler", "iree-base-runtime"]),
}
DEFAULT_PEERS = ["ort", "ov", "jax", "torch", "iree"]


def rate(workload):
    """The learning rate of a workload with `sgd`."""
    return RATES.get(workload.name, SGD_RATE)


def select(patterns):
    """The workloads whose names match one of the globs; all, without globs."""
    chosen = [w for w in ALL if not patterns or any(fnmatch(w.name, p) for p in patterns)]
    for p in patterns:
        if not any(fnmatch(w.name, p) for w in ALL):
            raise SystemExit(f"no workload is called {p}; there are: {', '.join(BY_NAME)}")
    return chosen


def ways(peer, workload):
    """In which ways a peer does a workload; the fastest counts. None, if it does not do it."""
    if peer in ("ort", "ov"):  # they do not train
        return [] if workload.trains else [peer]
    if peer == "iree":  # takes minutes to compile the larger training steps, and is slow there
        return [peer] if not workload.trains or workload.graph.startswith("mlp") else []
    if workload.kind == "light":
        return []
    if peer == "jax" and workload.is_lstm:
        return ["jax", "jax-loop"]
    if peer in ("torch", "torchc") and workload.is_convnet:
        return [peer, f"{peer}-channels-last"]
    return [peer]


def tfc_ways(workload):
    """The same of tfc: a name, and the `let`s of the graph."""
    if workload.is_lstm:
        return {"tfc": {**workload.lets, "LOOP": "false"}, "tfc-loop": {**workload.lets, "LOOP": "true"}}
    return {"tfc": workload.lets}
