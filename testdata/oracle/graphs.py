"""Compares random graphs with JAX, which shares no code with this project.

    cargo run --release -p tfc-testdata --example graphs -- dump DIR 300
    python3 testdata/oracle/graphs.py DIR

Reads the printed form of each graph, one op a line, and computes it in f64 (numbers
of narrow types are rounded to them after every op). Gradients are JAX's own. Graphs
with control flow or variables are counted and left out.
"""

import glob, json, os, re, struct, sys

import jax

jax.config.update("jax_enable_x64", True)
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax import lax

DTYPES = {
    "f32": np.float32, "f64": np.float64, "f16": np.float16, "bf16": ml_dtypes.bfloat16,
    "i8": np.int8, "u8": np.uint8, "i32": np.int32, "i64": np.int64, "bool": np.bool_,
}
SAFE = {"F32": "f32", "F64": "f64", "F16": "f16", "BF16": "bf16", "I8": "i8", "U8": "u8",
        "I32": "i32", "I64": "i64", "BOOL": "bool"}
# What a few roundings may do to a result of typical size.
TOLERANCE = {"f32": 2e-4, "f64": 1e-10, "f16": 6e-2, "bf16": 3e-1}


class LeftOut(Exception):
    pass


def load(path):
    raw = open(path, "rb").read()
    (n,) = struct.unpack("<Q", raw[:8])
    head, out = json.loads(raw[8 : 8 + n]), {}
    for name, t in head.items():
        if name != "__metadata__":
            a, b = t["data_offsets"]
            dtype = DTYPES[SAFE[t["dtype"]]]
            out[name] = np.frombuffer(raw[8 + n + a : 8 + n + b], dtype).reshape(t["shape"])
    return out


def split(text):
    """At commas outside brackets."""
    parts, depth, last = [], 0, 0
    for i, c in enumerate(text):
        depth += c in "([" 
        depth -= c in ")]"
        if c == "," and depth == 0:
            parts.append(text[last:i])
            last = i + 1
    return [p.strip() for p in parts + [text[last:]] if p.strip()]


class Program:
    def __init__(self, text):
        lines = text.split("\n")
        start = next(i for i, l in enumerate(lines) if l.startswith("entry "))
        self.body = []
        self.dims = {}
        for line in lines[start + 1 :]:
            line = line.strip()
            if line == "}":
                break
            if line.startswith("return"):
                self.results = split(line[len("return") :])
                break
            if "{" in line or line.endswith("}"):
                raise LeftOut("control flow")
            m = re.match(r"^(\(.*?\)|[^ ]+?: .*?) = ([a-z0-9_]+)\((.*)\)$", line)
            if not m:
                raise LeftOut("effects")
            targets, op, args = m.groups()
            targets = split(targets[1:-1]) if targets[0] == "(" else [targets]
            targets = [t.split(": ", 1) for t in targets]
            operands, attrs = [], {}
            for arg in split(args):
                m = re.match(r"^([a-z_]+): (.*)$", arg)
                if m:
                    attrs[m[1]] = m[2]
                else:
                    operands.append(arg)
            if op in ("read", "assign", "scatter_assign_add", "random_uniform", "while", "if"):
                raise LeftOut(op)
            self.body.append((targets, op, operands, attrs))

    def number(self, text):
        return eval(text.replace("/", "//"), {}, self.dims)

    def numbers(self, text):
        return [self.number(p) for p in split(text.strip()[1:-1])]

    def run(self, env, end=None, given={}):
        env = dict(env, **{k: v for k, v in given.items() if k in env})
        for targets, op, operands, attrs in self.body[:end]:
            if op == "grad":
                at = next(i for i, s in enumerate(self.body) if s[0] is targets)
                y, wrt = operands[0], operands[1:]

                def f(values):
                    # Only what is differentiated by is given; the rest is computed anew.
                    return self.run(self.feeds, at, dict(given, **dict(zip(wrt, values))))[y]

                values = jax.grad(lambda v: f(v).astype(jnp.float64))([env[w] for w in wrt])
            else:
                dtype = re.match(r"[a-z0-9]+", targets[0][1])[0]
                values = [self.op(op, [env[o] for o in operands], attrs, dtype)]
            for (name, _), value in zip(targets, values):
                env[name] = given.get(name, value)
        return env

    def op(self, op, x, attrs, dtype):
        n = self.numbers
        flag = lambda name: attrs[name] == "true"
        integer = not dtype.startswith("f") and dtype not in ("bf16", "bool")
        to = DTYPES[dtype]
        if op in ONE:
            return ONE[op](x[0])
        if op in TWO:
            return TWO[op](*x)
        if op in ("sum", "mean", "max", "min", "prod", "any", "all"):
            how = dict(axis=tuple(n(attrs["axes"])), keepdims=flag("keep"))
            if op in ("max", "min"):
                if dtype.startswith(("f", "bf")):
                    how["initial"] = -np.inf if op == "max" else np.inf
                else:
                    info = np.iinfo(to)
                    how["initial"] = info.min if op == "max" else info.max
                # JAX's gradient of equal elements shares evenly, as ours does.
                return getattr(jnp, op)(x[0], **how).astype(to)
            return getattr(jnp, op)(x[0], **how).astype(to)
        if op == "const":
            m = re.match(r"^([a-z0-9]+)(\[.*?\])\((.*)\)$", attrs["value"])
            shape = n(m[2])
            values = [v.strip() for v in m[3].split(",")]
            if values[0].startswith("bytes"):
                raise LeftOut("bytes")
            if m[1] == "bool":
                values = [v == "true" for v in values]
            values = np.array([float(v) if dtype.startswith(("f", "bf")) else int(v) for v in values])
            return jnp.broadcast_to(jnp.array(values.astype(to)).reshape(shape if values.size > 1 else []), shape)
        if op == "cast":
            v = x[0]
            if integer and v.dtype.kind in "fV":
                info = np.iinfo(to)
                return jnp.trunc(jnp.clip(v.astype(jnp.float64), info.min, info.max)).astype(to)
            return v.astype(to) if dtype != "bool" else v != 0
        if op == "clamp":
            return jnp.minimum(jnp.maximum(x[0], x[1]), x[2])
        if op == "select":
            return jnp.where(*x)
        if op == "pow":
            return jnp.power(*x) if not integer else self.left("integer power")
        if op == "div":
            return x[0] / x[1] if not integer else jnp.where(x[1] == 0, 0, lax.div(x[0], jnp.where(x[1] == 0, 1, x[1])))
        if op == "rem":
            if integer:
                return jnp.where(x[1] == 0, 0, lax.rem(x[0], jnp.where(x[1] == 0, 1, x[1])))
            return lax.rem(x[0], x[1])
        if op == "broadcast":
            shape, axes = n(attrs["shape"]), n(attrs["axes"])
            return lax.broadcast_in_dim(x[0], shape, axes)
        if op == "reshape":
            return x[0].reshape(n(attrs["shape"]))
        if op == "transpose":
            return x[0].transpose(n(attrs["perm"]))
        if op == "reverse":
            return jnp.flip(x[0], n(attrs["axes"]))
        if op == "concat":
            return jnp.concatenate(x, axis=self.number(attrs["axis"]))
        if op == "slice":
            ends = zip(n(attrs["starts"]), n(attrs["ends"]), n(attrs["strides"]))
            return x[0][tuple(slice(a, b, s) for a, b, s in ends)]
        if op == "pad":
            low, high = n(attrs["low"]), n(attrs["high"])
            gaps = n(attrs["interior"]) or [0] * len(low)
            value = np.array(float(attrs["value"])).astype(to)
            return lax.pad(x[0], jnp.array(value), list(zip(low, high, gaps)))
        if op == "iota":
            shape = n(attrs["shape"])
            return lax.broadcasted_iota(to, shape, self.number(attrs["axis"]))
        if op in ("cumsum", "cumprod"):
            axis, v = self.number(attrs["axis"]), x[0]
            v = jnp.flip(v, axis) if flag("reverse") else v
            out = getattr(jnp, op)(v, axis=axis).astype(to)
            if flag("exclusive"):
                first = jnp.full_like(lax.slice_in_dim(out, 0, min(1, out.shape[axis]), axis=axis), op == "cumprod")
                out = jnp.concatenate([first, lax.slice_in_dim(out, 0, max(0, out.shape[axis] - 1), axis=axis)], axis=axis)
            return jnp.flip(out, axis) if flag("reverse") else out
        if op in ("argmax", "argmin"):
            axis = self.number(attrs["axis"])
            if x[0].shape[axis] == 0:
                raise LeftOut("argmax of nothing")
            return getattr(jnp, op)(x[0], axis=axis, keepdims=flag("keep")).astype(np.int32)
        if op == "gather":
            axis = self.number(attrs["axis"])
            if x[0].shape[axis] == 0:
                raise LeftOut("gather of nothing")
            return jnp.take(x[0], jnp.clip(x[1].astype(jnp.int64), 0, x[0].shape[axis] - 1), axis=axis)
        if op == "one_hot":
            return (x[0][..., None].astype(jnp.int64) == jnp.arange(self.number(attrs["depth"]))).astype(to)
        if op in ("dynamic_slice", "dynamic_update_slice"):
            starts = [s.astype(jnp.int64) for s in x[(1 if op == "dynamic_slice" else 2) :]]
            # JAX counts negative starts from the end; ours are brought into range.
            starts = [jnp.maximum(s, 0) for s in starts]
            if op == "dynamic_slice":
                return lax.dynamic_slice(x[0], starts, n(attrs["sizes"]))
            return lax.dynamic_update_slice(x[0], x[1], starts)
        if op == "scatter_add":
            return x[0].at[x[1]].add(x[2])
        if op == "matmul":
            a = jnp.swapaxes(x[0], -1, -2) if flag("trans_a") else x[0]
            b = jnp.swapaxes(x[1], -1, -2) if flag("trans_b") else x[1]
            if dtype in ("f16", "bf16"):
                return jnp.matmul(a.astype(jnp.float64), b.astype(jnp.float64)).astype(to)
            return jnp.matmul(a, b)
        if op == "conv2d":
            p = n(attrs["pad"])
            wide = jnp.int64 if integer else jnp.float64
            if integer:
                raise LeftOut("integer convolution")
            return lax.conv_general_dilated(
                x[0].astype(wide), x[1].astype(wide), n(attrs["stride"]), [(p[0], p[1]), (p[2], p[3])],
                rhs_dilation=n(attrs["dilation"]), feature_group_count=self.number(attrs["groups"]),
            ).astype(to)
        if op in ("max_pool", "avg_pool"):
            if integer:
                raise LeftOut("integer pool")
            p, window = n(attrs["pad"]), [1, 1] + n(attrs["window"])
            stride = [1, 1] + (n(attrs["stride"]) or n(attrs["window"]))
            pads = [(0, 0), (0, 0), (p[0], p[1]), (p[2], p[3])]
            v = x[0].astype(jnp.float64)
            if op == "max_pool":
                return lax.reduce_window(v, -jnp.inf, lax.max, window, stride, pads).astype(to)
            total = lax.reduce_window(v, 0.0, lax.add, window, stride, pads)
            count = lax.reduce_window(jnp.ones_like(v), 0.0, lax.add, window, stride, pads)
            return (total / count).astype(to)
        raise LeftOut(op)

    def left(self, why):
        raise LeftOut(why)


def relu(x):
    return jnp.where(x > 0, x, jnp.zeros_like(x))


def absolute(x):
    # With a derivative of 0 at 0; JAX's own has 1 there.
    return jnp.sign(x) * x


ONE = {
    "abs": absolute, "neg": jnp.negative, "exp": jnp.exp, "expm1": jnp.expm1, "log": jnp.log,
    "log1p": jnp.log1p, "sin": jnp.sin, "cos": jnp.cos, "tanh": jnp.tanh, "sqrt": jnp.sqrt,
    "rsqrt": lax.rsqrt, "sigmoid": jax.nn.sigmoid, "erf": lax.erf, "floor": jnp.floor,
    "ceil": jnp.ceil, "round": jnp.round, "sign": jnp.sign, "relu": relu,
    "stop_gradient": lax.stop_gradient, "not": jnp.invert,
    "is_nan": jnp.isnan, "is_finite": jnp.isfinite,
}
TWO = {
    "add": jnp.add, "sub": jnp.subtract, "mul": jnp.multiply, "maximum": jnp.maximum,
    "minimum": jnp.minimum, "eq": jnp.equal, "ne": jnp.not_equal, "lt": jnp.less,
    "le": jnp.less_equal, "gt": jnp.greater, "ge": jnp.greater_equal,
    "and": jnp.bitwise_and, "or": jnp.bitwise_or, "xor": jnp.bitwise_xor,
}


def differs(want, got, dtype):
    want, got = np.asarray(want), np.asarray(got)
    if want.shape != got.shape:
        return f"shape {got.shape}, JAX has {want.shape}"
    if dtype not in TOLERANCE:
        return None if np.array_equal(want, got) else f"{got.ravel()[:8]}, JAX has {want.ravel()[:8]}"
    want, got = want.astype(np.float64), got.astype(np.float64)
    finite = np.abs(want[np.isfinite(want)])
    scale = np.maximum(np.abs(want), max(finite.mean(), 0.05) if finite.size else 1.0)
    with np.errstate(invalid="ignore"):
        close = (np.abs(want - got) <= TOLERANCE[dtype] * scale) | (want == got) | (np.isnan(want) & np.isnan(got))
    if close.all():
        return None
    at = np.argwhere(~close)[0]
    return f"at {list(at)}: {got[tuple(at)]}, JAX has {want[tuple(at)]}"


def main(folder):
    compared, left, wrong = 0, {}, 0
    for path in sorted(glob.glob(os.path.join(folder, "*.graph"))):
        seed = os.path.basename(path)[: -len(".graph")]
        try:
            program = Program(open(path).read())
            tensors = load(path[: -len("graph")] + "safetensors")
            feeds = {k[3:]: jnp.array(v) for k, v in tensors.items() if k.startswith("in.")}
            program.dims = dict(zip("BN", tensors["in.dims"].shape))
            program.feeds = feeds
            env = program.run(feeds)
        except LeftOut as why:
            left[str(why)] = left.get(str(why), 0) + 1
            continue
        except Exception as e:
            left["trouble"] = left.get("trouble", 0) + 1
            print(f"{seed}: {type(e).__name__}: {str(e)[:200]}")
            continue
        compared += 1
        for i, name in enumerate(program.results):
            got = tensors[f"out.r{i}"]
            dtype = next(k for k, v in DTYPES.items() if got.dtype == v)
            how = differs(env[name], got, dtype)
            if how:
                wrong += 1
                print(f"{seed}: r{i} ({name}, {dtype}): {how}")
                break
    print(f"{compared} graphs compared with JAX {jax.__version__}, {wrong} differ; left out: {left}")
    sys.exit(wrong > 0)


main(sys.argv[1])
