"""tfc's side: compiles a workload's graph, gives the program its weights and inputs, checks what
it computes, and times it."""

import json
import os
import struct
import subprocess

import numpy as np
import onnx

import models
import onnx2tfc
from cases import HERE, STEP_LIMIT
from workloads import tfc_ways


class Program:
    """A compiled workload with its files."""

    def __init__(self, executable, feeds, state, result):
        self.executable, self.feeds, self.state, self.result = executable, feeds, state, result

    def command(self, *words):
        line = [self.executable, *words]
        for name, path in self.feeds.items():
            line += ["--feed", f"{name}={path}"]
        return line

    def run(self, out, state):
        """A call; training changes the file of the state."""
        line = self.command("run") + ["--out", f"{self.result}={out}"]
        execute(line + (["--state", state] if state else []))
        return np.load(out)

    def bench(self, threads, seconds):
        """The least and the median time of a call, in milliseconds, and the number of calls."""
        line = self.command("bench", "run") + ["--threads", str(threads)]
        line += ["--time", f"{int(seconds * 1000)}ms", "--message-format", "json"]
        out = execute(line + (["--state", self.state] if self.state else []))
        measured = json.loads(out.strip().splitlines()[-1])
        return measured["min_ns"] / 1e6, measured["median_ns"] / 1e6, measured["calls"]


def execute(line):
    done = subprocess.run(line, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{os.path.basename(line[0])} {line[1]}: {done.stderr.strip()}")
    return done.stdout


def prepare(tfc, case):
    """The programs of a workload by the way it is written: compiled, and what they compute is
    right. Gives them with their errors."""
    workload = case.workload
    os.makedirs(case.path("tfc"), exist_ok=True)
    if workload.kind == "light":
        text, weights = onnx2tfc.convert(onnx.load(case.model), workload.name)
        graph = case.path("tfc/model.graph")
        with open(graph, "w") as file:
            file.write(text)
        inputs = {"x": feed for feed in np.load(case.feeds).values()}
        expected = {}
    else:
        graph = os.path.join(HERE, "graphs", f"{workload.graph}.graph")
        weights, inputs = models.data(workload)
        weights = as_in_graph(weights)
        expected = np.load(case.expected) if workload.trains else {}
        new = {k[len("new.") :]: expected[k] for k in expected if k.startswith("new.")}
        expected = as_in_graph(new)
    programs = {}
    for way, lets in tfc_ways(workload).items():
        program, names = build(tfc, case.path(f"tfc/{way}"), graph, lets, weights, inputs)
        programs[way] = program, check(case, program, dict(zip(names, expected.values())))
    return programs


def as_in_graph(weights):
    """The two matrices of an LSTM's layer, of its input and of its last `h`, are one in tfc."""
    joined = {}
    for name, value in weights.items():
        if name.startswith("wx"):
            name, value = f"w{name[2:]}", np.concatenate([value, weights[f"wh{name[2:]}"]])
        if not name.startswith("wh"):
            joined[name] = value
    return joined


def build(tfc, base, graph, lets, weights, inputs):
    """Compiles a graph and writes what it is fed. Gives the program, and the names of the weights
    in it, in their order."""
    line = [tfc, "compile", graph, "-o", base]
    for name, value in lets.items():
        line += ["--let", f"{name}={value}"]
    execute(line)
    signature = json.loads(execute([base, "--signature", "--message-format", "json"]))
    (entry,) = signature["entries"]
    feeds = {}
    for feed in entry["feeds"]:
        feeds[feed["name"]] = f"{base}.{feed['name']}.npy"
        np.save(feeds[feed["name"]], inputs[feed["name"]])
    state, names = first_state(signature["variables"], weights)
    path = f"{base}.safetensors" if state else None
    if path:
        write_safetensors(path, state)
    return Program(base, feeds, path, entry["results"][0]["name"]), names


def first_state(variables, weights):
    """All variables of a program: weights in the order of the text, and zeros for what an optimizer
    remembers. Running means are not looked at in training."""
    state, names = {}, []
    left = list(weights.values())
    for variable in variables:
        name, kind = variable["name"], variable["type"]
        dtype, shape = kind.rstrip("]").split("[")
        shape = [int(d) for d in shape.split(",") if d]
        if variable["user"] and "running_" not in name:
            weight = left.pop(0)
            if list(weight.shape) != shape:
                raise ValueError(f"{name} is {kind} in the graph and {weight.shape} in models.py")
            state[name] = weight
            names.append(name)
        else:
            state[name] = np.zeros(shape, {"f32": np.float32, "i64": np.int64}[dtype])
    if left:
        raise ValueError(f"models.py has {len(left)} more weights than the graph")
    return state, names


def check(case, program, expected):
    """Runs a program, a step of training twice, and gives the error of what it computes."""
    out = case.path("tfc/out.npy")
    if not case.workload.trains:
        return case.error(program.run(out, program.state))
    state = case.path("tfc/after.safetensors")
    with open(program.state, "rb") as source, open(state, "wb") as to:
        to.write(source.read())
    losses = [program.run(out, state)]
    before, after = read_safetensors(program.state), read_safetensors(state)
    for name, value in expected.items():
        wrong = step_error(before[name], after[name], value)
        if not wrong <= STEP_LIMIT:
            raise ValueError(f"{wrong:.1%} of the change of {name} by a step is wrong")
    losses.append(program.run(out, state))
    os.remove(state)
    return case.error(losses)


def step_error(before, after, expected):
    """How far the change of a weight by a step is from what is right, beyond the last bit of the
    weight itself."""
    change = np.linalg.norm(expected.astype(np.float64) - before)
    if change < 1e-9:  # a gradient that is zero but for rounding, as of the bias of keys
        return 0.0
    wrong = np.abs(after.astype(np.float64) - expected) - np.spacing(np.abs(expected))
    return float(np.linalg.norm(np.maximum(wrong, 0)) / change)


def write_safetensors(path, tensors):
    header, at = {}, 0
    for name, value in tensors.items():
        dtype = {"float32": "F32", "int64": "I64"}[str(value.dtype)]
        end = at + value.nbytes
        header[name] = {"dtype": dtype, "shape": list(value.shape), "data_offsets": [at, end]}
        at = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for value in tensors.values():
            file.write(np.ascontiguousarray(value).tobytes())


def read_safetensors(path):
    with open(path, "rb") as file:
        (size,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(size))
        data = file.read()
    tensors = {}
    for name, entry in header.items():
        if name != "__metadata__":
            start, end = entry["data_offsets"]
            dtype = {"F32": np.float32, "I64": np.int64}[entry["dtype"]]
            tensors[name] = np.frombuffer(data[start:end], dtype).reshape(entry["shape"])
    return tensors
