"""The Python the peers are run by: one that is given, or a virtual environment that is made here."""

import os
import subprocess
import sys

from workloads import PEERS

# What is imported of a package that has another name.
MODULES = {"iree-base-compiler": "iree.compiler", "iree-base-runtime": "iree.runtime"}

# Set in the process that `enter` starts.
ENTERED = "TFC_PEERS_ENTERED"


def packages(peers, workloads):
    """What has to be installed for these peers and workloads."""
    wanted = ["numpy", "onnx"]
    for peer in peers:
        wanted += PEERS[peer][1]
    if any(w.trains for w in workloads):
        wanted += ["torch"]  # says what is right
    if any(w.kind == "light" for w in workloads):
        wanted += ["onnxruntime"]  # the same
    return list(dict.fromkeys(wanted))


def enter(out, python, python_torch, wanted):
    """Goes on in a Python that has all that is wanted; gives the one for PyTorch."""
    if python_torch:
        demand(python_torch, ["numpy", "torch"])
        wanted = [p for p in wanted if p != "torch"]
    if os.environ.get(ENTERED):
        return python_torch or sys.executable
    if python:
        demand(python, wanted)
    else:
        python = install(os.path.join(out, "venv"), wanted)
    os.execve(python, [python, *sys.argv], {**os.environ, ENTERED: "1"})


def missing(python, wanted):
    """Which packages cannot be imported there."""
    modules = {MODULES.get(package, package): package for package in wanted}
    test = "import sys, importlib.util as u; sys.path[:1] = []\n"
    test += f"for m in {list(modules)!r}:\n"
    test += "    try: found = u.find_spec(m)\n    except ImportError: found = None\n"
    test += "    if not found: print(m)"
    done = subprocess.run([python, "-c", test], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{python} does not run: {done.stderr.strip()[-300:]}")
    return [modules[m] for m in done.stdout.split()]


def demand(python, wanted):
    lacks = missing(python, wanted)
    if lacks:
        raise SystemExit(f"{python} lacks {', '.join(lacks)}: install them with its pip")


def install(folder, wanted):
    """Makes a virtual environment, or adds to it what it lacks."""
    python = os.path.join(folder, "bin", "python")
    if not os.path.exists(python):
        run([sys.executable, "-m", "venv", folder], f"no virtual environment in {folder}")
    lacks = missing(python, wanted)
    if lacks:
        print(f"installing {', '.join(lacks)} in {folder}", file=sys.stderr)
        help = (
            f"pip cannot install {', '.join(lacks)}: without a package index within reach, install "
            "them in an environment of your own, and name its Python with --python; or leave out "
            "with --peers those that need them"
        )
        run([python, "-m", "pip", "install", "--quiet", *lacks], help)
    return python


def run(line, failure):
    if subprocess.run(line).returncode:
        raise SystemExit(failure)
