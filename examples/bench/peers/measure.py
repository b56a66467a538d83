"""Prepares workloads, and times tfc and the peers on them."""

import json
import os
import resource
import subprocess
import sys
import time

import numpy as np
import onnx

import light
import models
import ops_numpy
import ops_onnx
import tfc
from cases import HERE, LIMIT, Case, is_fresh
from workloads import ways

# A peer that compiles for longer has failed.
PATIENCE = 1200

SETTINGS = {
    "JAX_PLATFORMS": "cpu",
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "ONEDNN_DEFAULT_FPMATH_MODE": "STRICT",  # PyTorch: no bf16 inside of products of f32
}


def measure(workloads, peers, threads, seconds, out, tfc_binary, python_torch):
    """Times everything and writes a record for each measurement to results.jsonl."""
    bench = Bench(out, time.strftime("%F %T"), seconds, python_torch)
    for workload in workloads:
        case = Case(out, workload)
        try:
            prepare(case, python_torch)
            programs = tfc.prepare(tfc_binary, case)
        except Exception as e:
            for count in threads:
                bench.record("tfc", "tfc", workload, count, note=brief(e))
            continue
        for count in threads:
            bench.tfc(programs, workload, count)
            for peer in peers:
                for way in ways(peer, workload):
                    bench.peer(peer, way, workload, count)
            bench.tfc(programs, workload, count)


def prepare(case, python_torch):
    """Writes what the peers load, and what is right, if it is not there."""
    workload = case.workload
    if workload.kind == "light":
        if not is_fresh(case.expected, "light.py"):
            model, feeds, result = light.build(workload)
            save(case, model, feeds)
            np.savez(case.expected, result=result)
    elif workload.trains:
        script = "expected_step.py"
        if not is_fresh(case.expected, "models.py", "workloads.py", "ops_torch.py", script):
            out = os.path.dirname(case.folder)
            tfc.execute([python_torch, os.path.join(HERE, script), out, workload.name])
    elif not is_fresh(case.expected, "models.py", "workloads.py", "ops_numpy.py", "ops_onnx.py"):
        save(case, *ops_onnx.build(workload))
        weights, inputs = models.data(workload)
        doubles = [
            {k: v.astype(np.float64) if v.dtype == np.float32 else v for k, v in values.items()}
            for values in (weights, inputs)
        ]
        np.savez(case.expected, result=models.result(workload, ops_numpy.Ops(), *doubles))


def save(case, model, feeds):
    onnx.save(model, case.model)
    np.savez(case.feeds, **feeds)


class Bench:
    def __init__(self, out, run, seconds, python_torch):
        self.out, self.run, self.seconds, self.python_torch = out, run, seconds, python_torch

    def tfc(self, programs, workload, threads):
        for way, (program, error) in programs.items():
            with Others() as others:
                try:
                    ms, median, calls = program.bench(threads, self.seconds)
                    measured = {"ms": ms, "median_ms": median, "calls": calls, "error": error}
                except Exception as e:
                    measured = {"note": brief(e)}
            self.record("tfc", way, workload, threads, **measured, others=others.used)

    def peer(self, peer, way, workload, threads):
        python = self.python_torch if peer.startswith("torch") else sys.executable
        line = [python, os.path.join(HERE, "time_peer.py"), self.out, workload.name]
        line += [way, str(threads), str(self.seconds)]
        environment = {**os.environ, **SETTINGS, "OMP_NUM_THREADS": str(threads)}
        with Others() as others:
            try:
                done = subprocess.run(
                    line, env=environment, capture_output=True, text=True, timeout=PATIENCE
                )
                if done.returncode:
                    lines = done.stderr.strip().splitlines()
                    measured = {"note": lines[-1] if lines else f"ended with {done.returncode}"}
                else:
                    measured = json.loads(done.stdout.strip().splitlines()[-1])
            except subprocess.TimeoutExpired:
                measured = {"note": f"not done after {PATIENCE} s"}
        self.record(peer, way, workload, threads, **measured, others=others.used)

    def record(self, peer, way, workload, threads, **measured):
        record = {"run": self.run, "workload": workload.name, "peer": peer, "way": way}
        record |= {"threads": threads, **measured}
        if not measured.get("error", 0) <= LIMIT:
            record["note"] = f"a wrong result, error {measured['error']:.1e}"
        with open(os.path.join(self.out, "results.jsonl"), "a") as file:
            file.write(json.dumps(record) + "\n")
        if "note" in record:
            text = record["note"]
        else:
            text = f"{record['ms']:10.4f} ms, {record['calls']} calls, error {record['error']:.0e}"
            text += f", {record['others']} CPUs used by others"
        print(f"{workload.name:22} {threads} {way:20} {text}", file=sys.stderr, flush=True)


def brief(exception):
    """On one line."""
    return " ".join(str(exception).split())[:300] or type(exception).__name__


class Others:
    """How many CPUs other processes used in the time of a block."""

    def __enter__(self):
        self.start, self.busy, self.own = time.perf_counter(), busy(), own()
        return self

    def __exit__(self, *error):
        elapsed = time.perf_counter() - self.start
        used = busy() - self.busy - (own() - self.own)
        self.used = round(max(0.0, used / elapsed), 2)


def busy():
    """Seconds that all CPUs together were busy, or not ours, since the machine started."""
    with open("/proc/stat") as file:
        ticks = [int(t) for t in file.readline().split()[1:9]]
    idle, waiting = ticks[3], ticks[4]
    return (sum(ticks) - idle - waiting) / os.sysconf("SC_CLK_TCK")


def own():
    """Seconds of CPU that this process and its children used."""
    used = 0.0
    for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN):
        usage = resource.getrusage(who)
        used += usage.ru_utime + usage.ru_stime
    return used
