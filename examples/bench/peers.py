#!/usr/bin/env python3
"""Times tfc against ONNX Runtime on the same data, in one run, and prints a table.

    pip install numpy onnx onnxruntime
    python examples/bench/peers.py [--tfc target/release/tfc] [--threads 1,2] [--time 1]

Both sides get the same weights and inputs, their results are compared, and each
cell is the least time of many calls: weights resident, compilation outside the
clock. Rounds alternate between the two, so that a noisy machine is noisy for
both.
"""
import argparse, json, os, struct, subprocess, sys, tempfile, time

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
EXAMPLES = os.path.dirname(HERE)


def safetensors(path, tensors):
    """Writes the format tfc's `--state` reads."""
    header, blobs, at = {}, [], 0
    for name, value in tensors.items():
        blob = np.ascontiguousarray(value).tobytes()
        header[name] = {"dtype": "F32", "shape": list(value.shape), "data_offsets": [at, at + len(blob)]}
        blobs.append(blob)
        at += len(blob)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + b"".join(blobs))


def mlp_onnx(weights):
    from onnx import TensorProto, helper, numpy_helper

    nodes, last = [], "x"
    for i in (1, 2, 3):
        nodes.append(helper.make_node("Gemm", [last, f"w{i}", f"b{i}"], [f"z{i}"]))
        last = f"z{i}"
        if i < 3:
            nodes.append(helper.make_node("Relu", [last], [f"h{i}"]))
            last = f"h{i}"
    init = [numpy_helper.from_array(v, k) for k, v in weights.items()]
    return model(nodes, init, ["B", 784], [last, ["B", 10]])


def chain_onnx():
    from onnx import helper, numpy_helper

    consts, nodes, count = [], [], [0]

    def c(value):
        name = f"c{len(consts)}"
        consts.append(numpy_helper.from_array(np.float32(value), name))
        return name

    def op(kind, *ins, out=None):
        count[0] += 1
        out = out or f"t{count[0]}"
        nodes.append(helper.make_node(kind, list(ins), [out]))
        return out

    a = op("Sub", op("Mul", "x", c(1.25)), c(0.5))
    cube = op("Mul", op("Mul", op("Mul", c(0.044715), a), a), a)
    t = op("Tanh", op("Mul", c(0.7978845608028654), op("Add", a, cube)))
    gelu = op("Mul", op("Mul", c(0.5), a), op("Add", c(1.0), t))
    op("Add", op("Mul", gelu, op("Sigmoid", "x")), "x", out="y")
    return model(nodes, consts, ["N"], ["y", ["N"]])


def model(nodes, init, in_shape, out):
    from onnx import TensorProto, helper

    f = TensorProto.FLOAT
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", f, in_shape)],
        [helper.make_tensor_value_info(out[0], f, out[1])], init)
    m = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    m.ir_version = 8
    return m.SerializeToString()


class Ort:
    def __init__(self, data, x, threads):
        import onnxruntime as ort

        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        session = ort.InferenceSession(data, options, providers=["CPUExecutionProvider"])
        self.io = session.io_binding()
        self.keep = ort.OrtValue.ortvalue_from_numpy(x)
        self.io.bind_ortvalue_input("x", self.keep)
        self.io.bind_output(session.get_outputs()[0].name, "cpu")
        self.session = session
        self.call()
        self.result = self.io.copy_outputs_to_cpu()[0]

    def call(self):
        self.session.run_with_iobinding(self.io)

    def least(self, seconds):
        best, end = float("inf"), time.perf_counter() + seconds
        while time.perf_counter() < end:
            t = time.perf_counter()
            self.call()
            best = min(best, time.perf_counter() - t)
        return best * 1e3


def tfc_least(exe, entry, feed, threads, seconds, state):
    line = [exe, "bench", entry, "--feed", f"x={feed}", "--threads", str(threads),
            "--time", f"{int(seconds * 1000)}ms", "--message-format", "json"]
    line += ["--state", state] if state else []
    out = subprocess.run(line, check=True, capture_output=True, text=True).stdout
    return json.loads(out.strip().splitlines()[-1])["min_ns"] / 1e6


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--tfc", default="target/release/tfc")
    p.add_argument("--threads", default="1,2")
    p.add_argument("--time", type=float, default=1.0, help="seconds per cell and round")
    p.add_argument("--rounds", type=int, default=3)
    a = p.parse_args()
    rng = np.random.default_rng(0)
    weights = {}
    for i, (m, n) in enumerate([(784, 512), (512, 512), (512, 10)], 1):
        weights[f"w{i}"] = (rng.standard_normal((m, n)) * (2 / m) ** 0.5).astype(np.float32)
        weights[f"b{i}"] = (rng.standard_normal(n) * 0.01).astype(np.float32)
    cases = [
        ("MLP 784-512-512-10, batch 1", f"{EXAMPLES}/mlp.graph", "predict", "logits", (1, 784), True),
        ("MLP 784-512-512-10, batch 64", f"{EXAMPLES}/mlp.graph", "predict", "logits", (64, 784), True),
        ("elementwise chain, 65,536 floats", f"{HERE}/elementwise.graph", "chain", "y", (65536,), False),
    ]
    print("| workload | threads | tfc, ms | ONNX Runtime, ms | ratio | largest difference |")
    print("|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as d:
        state = f"{d}/w.safetensors"
        safetensors(state, weights)
        for name, graph, entry, result, shape, stateful in cases:
            exe = f"{d}/{os.path.basename(graph)[:-6]}"
            subprocess.run([a.tfc, "compile", graph, "-o", exe], check=True, stdout=subprocess.DEVNULL)
            x = rng.standard_normal(shape).astype(np.float32)
            np.save(f"{d}/x.npy", x)
            line = [exe, entry, "--feed", f"x={d}/x.npy", "--out", f"{result}={d}/y.npy"]
            line += ["--state", state] if stateful else []
            subprocess.run(line, check=True, stdout=subprocess.DEVNULL)
            ours = np.load(f"{d}/y.npy")
            onnx = mlp_onnx(weights) if stateful else chain_onnx()
            for threads in map(int, a.threads.split(",")):
                ort = Ort(onnx, x, threads)
                diff = np.abs(ours - ort.result).max() / np.abs(ort.result).max()
                best = [float("inf")] * 2
                for _ in range(a.rounds):
                    t = tfc_least(exe, entry, f"{d}/x.npy", threads, a.time, state if stateful else None)
                    best = [min(best[0], t), min(best[1], ort.least(a.time))]
                print(f"| {name} | {threads} | {best[0]:.4f} | {best[1]:.4f} "
                      f"| {best[0] / best[1]:.2f} | {diff:.1e} |", flush=True)
                del ort


if __name__ == "__main__":
    sys.exit(main())
