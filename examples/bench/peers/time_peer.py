"""Times a peer on a workload and prints a line of JSON. Started by measure.py, in a process of its
own for each: time_peer.py OUT WORKLOAD WAY THREADS SECONDS"""

import importlib
import json
import os
import statistics
import sys
import time

from cases import Case
from workloads import BY_NAME

WARMUP = 3  # calls before those that count, as `bench` of a program of tfc does


def measure(call, seconds):
    """The least and the median time of a call in milliseconds, and the number of calls."""
    for _ in range(WARMUP):
        call()
    times = []
    end = time.perf_counter() + seconds
    while len(times) < 2 or time.perf_counter() < end:
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times) * 1e3, statistics.median(times) * 1e3, len(times)


def main(out, name, way, threads, seconds):
    peer, threads = way.split("-")[0], int(threads)
    if peer == "jax":
        # XLA has no setting for it: it uses the CPUs the process may use.
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-threads:])
    module = importlib.import_module("peer_torch" if peer == "torchc" else f"peer_{peer}")
    case = Case(out, BY_NAME[name])
    result, call = module.load(case, way, threads)
    error = case.error(result)
    ms, median, calls = measure(call, float(seconds))
    times = {"ms": ms, "median_ms": median, "calls": calls}
    print(json.dumps({**times, "error": error, "version": module.version()}))


main(*sys.argv[1:])
