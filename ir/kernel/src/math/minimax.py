#!/usr/bin/env python3
"""Minimax polynomials for the elementary functions, by the Remez exchange.

    python3 minimax.py > tables.rs && rustfmt tables.rs

Each entry approximates g(t) on [a, b] by a polynomial of the given degree such
that the largest weighted error |w(t) (g(t) - p(t))| is smallest; the weight
turns it into the relative error of the function the polynomial is used in. The
achieved error is printed in each table's comment. Needs mpmath.
"""
import struct
from mpmath import mp, mpf, matrix, lu_solve, exp, expm1, log, log1p, sin, cos, sqrt, pi, erf, erfc, atan, asin, atanh, cospi

mp.dps = 90


def remez(g, w, a, b, degree):
    n = degree + 2
    a, b = mpf(a), mpf(b)
    points = [(a + b) / 2 + (b - a) / 2 * cospi(mpf(n - 1 - i) / (n - 1)) for i in range(n)]
    grid = 40 * n
    sample = [(a + b) / 2 + (b - a) / 2 * cospi(mpf(grid - i) / grid) for i in range(grid + 1)]
    gs, ws = [g(t) for t in sample], [w(t) for t in sample]
    coefs = None
    for _ in range(30):
        rows = matrix(n, n)
        rhs = matrix(n, 1)
        for i, t in enumerate(points):
            for j in range(degree + 1):
                rows[i, j] = t**j
            rows[i, degree + 1] = (-1) ** i / w(t)
            rhs[i] = g(t)
        solution = lu_solve(rows, rhs)
        coefs = [solution[j] for j in range(degree + 1)]
        level = abs(solution[degree + 1])

        def poly(t):
            v = mpf(0)
            for c in reversed(coefs):
                v = v * t + c
            return v

        errors = [ws[i] * (gs[i] - poly(t)) for i, t in enumerate(sample)]
        # One extremum per run of equal sign.
        extrema, start = [], 0
        for i in range(1, len(errors) + 1):
            if i == len(errors) or (errors[i] > 0) != (errors[start] > 0):
                best = max(range(start, i), key=lambda k: abs(errors[k]))
                extrema.append(best)
                start = i
        while len(extrema) > n:
            if abs(errors[extrema[0]]) < abs(errors[extrema[-1]]):
                extrema.pop(0)
            else:
                extrema.pop()
        worst = max(abs(e) for e in errors)
        if len(extrema) < n:
            break
        points = [sample[k] for k in extrema]
        if worst < level * mpf("1.01"):
            break
    return coefs, worst


def near(v, eps=mpf(10) ** -20):
    """Keeps removable singularities away from zero."""
    return v if abs(v) > eps else eps


def emit(name, doc, ty, g, w, a, b, degree):
    coefs, worst = remez(g, w, a, b, degree)
    print(f"/// {doc} Error {mp.nstr(worst, 2)}.")
    if ty == "f32":
        values = [struct.unpack("<f", struct.pack("<f", float(c)))[0] for c in coefs]
    else:
        values = [float(c) for c in coefs]
    print(f"pub(super) const {name}: [{ty}; {degree + 1}] = [")
    for v in values:
        text = repr(v) if ty == "f64" else shortest32(v)
        print(f"    {text},")
    print("];\n")


def shortest32(v):
    for digits in range(1, 12):
        text = f"{v:.{digits}e}"
        if struct.unpack("<f", struct.pack("<f", float(text)))[0] == v:
            return text
    return repr(v)


ln2 = log(mpf(2))
g_exp = lambda r: (lambda r: (expm1(r) - r) / r**2)(near(r))
g_log = lambda f: (lambda f: (log1p(f) - f + f * f / 2) / f**3)(near(f))
g_atanh = lambda z: (lambda z: (2 * atanh(sqrt(z)) / sqrt(z) - 2) / z)(near(z))
g_sin = lambda z: (lambda z: (sin(sqrt(z)) / sqrt(z) - 1) / z)(near(z))
g_cos = lambda z: (lambda z: (cos(sqrt(z)) - 1 + z / 2) / z**2)(near(z))
g_atan = lambda z: (lambda z: (atan(sqrt(z)) / sqrt(z) - 1) / z)(near(z))
g_asin = lambda z: (lambda z: (asin(sqrt(z)) / sqrt(z) - 1) / z)(near(z))
g_erf = lambda z: (lambda z: erf(sqrt(z)) / sqrt(z))(near(z))
quarter = (pi / 4) ** 2 * mpf("1.0005")

print("//! Coefficients, lowest first. Made by minimax.py; do not edit.\n")
emit("EXP_32", "`(exp(r) - 1 - r) / r^2`, |r| <= ln 2 / 2, for exp.", "f32", g_exp, lambda r: near(r)**2 / exp(r), -ln2 / 2 * 1.0005, ln2 / 2 * 1.0005, 4)
emit("EXPM1_32", "`(exp(r) - 1 - r) / r^2`, |r| <= ln 2 / 2, for expm1.", "f32", g_exp, lambda r: abs(near(r)**2 / expm1(near(r))), -ln2 / 2 * 1.0005, ln2 / 2 * 1.0005, 5)
emit("EXPM1_SHORT_32", "`(exp(r) - 1 - r) / r^2`, |r| <= ln 2 / 2, for tanh and sigmoid.", "f32", g_exp, lambda r: abs(near(r)**2 / expm1(near(r))), -ln2 / 2 * 1.0005, ln2 / 2 * 1.0005, 4)
emit("EXPM1_64", "`(exp(r) - 1 - r) / r^2`, |r| <= ln 2 / 2.", "f64", g_exp, lambda r: abs(near(r)**2 / expm1(near(r))), -ln2 / 2 * 1.0005, ln2 / 2 * 1.0005, 9)
emit("LOG_32", "`(log(1 + f) - f + f^2 / 2) / f^3`, sqrt(1/2) <= 1 + f <= sqrt(2).", "f32", g_log, lambda f: abs(near(f)**3 / log1p(near(f))), sqrt(mpf(0.5)) - 1 - mpf("1e-4"), sqrt(mpf(2)) - 1 + mpf("1e-4"), 8)
top = ((sqrt(mpf(2)) - 1) / (sqrt(mpf(2)) + 1)) ** 2 * mpf("1.001")
emit("ATANH_64", "`(2 atanh(s) / s - 2) / z` with z = s^2, for logarithms.", "f64", g_atanh, lambda z: near(z) / 2, 0, top, 6)
emit("ATANH_TAIL_64", "`((2 atanh(s) / s - 2) / z - 2/3) / z` with z = s^2, for powers.", "f64", lambda z: (lambda z: (g_atanh(z) - mpf(2) / 3) / z)(near(z)), lambda z: near(z)**2 / 2, 0, top, 6)
emit("SIN_32", "`(sin(r) / r - 1) / z` with z = r^2, |r| <= pi / 4.", "f32", g_sin, lambda z: near(z), 0, quarter, 2)
emit("COS_32", "`(cos(r) - 1 + z / 2) / z^2` with z = r^2, |r| <= pi / 4.", "f32", g_cos, lambda z: near(z)**2, 0, quarter, 2)
emit("SIN_64", "`(sin(r) / r - 1) / z` with z = r^2, |r| <= pi / 4.", "f64", g_sin, lambda z: near(z), 0, quarter, 5)
emit("COS_64", "`(cos(r) - 1 + z / 2) / z^2` with z = r^2, |r| <= pi / 4.", "f64", g_cos, lambda z: near(z)**2, 0, quarter, 5)
emit("ERF_NEAR_32", "`erf(x) / x - 1` in z = x^2, |x| <= 0.95.", "f32", lambda z: g_erf(z) - 1, lambda z: 1 / g_erf(z), 0, mpf("0.9025"), 6)
emit("ERF_FAR_32", "`log(erfc(t))`, 0.94 <= t <= 4.", "f32", lambda t: log(erfc(t)), lambda t: erfc(t) / erf(t), mpf("0.94"), 4, 6)
emit("ERF_NEAR_64", "`erf(x) / x - 1` in z = x^2, |x| <= 1.", "f64", lambda z: g_erf(z) - 1, lambda z: 1 / g_erf(z), 0, mpf("1.001"), 12)
emit("ERF_FAR_64", "`log(erfc(t))` in t - 3, 1 <= t <= 6.", "f64", lambda u: log(erfc(u + 3)), lambda u: erfc(u + 3) / erf(u + 3), mpf("-2.001"), 3, 17)
eighth = (sqrt(mpf(2)) - 1) ** 2 * mpf("1.001")
emit("ATAN_64", "`(atan(u) / u - 1) / z` with z = u^2, |u| <= tan(pi / 8).", "f64", g_atan, lambda z: near(z), 0, eighth, 11)
emit("ASIN_64", "`(asin(u) / u - 1) / z` with z = u^2, |u| <= 1/2.", "f64", g_asin, lambda z: near(z), 0, mpf("0.2501"), 12)


def g_erfc(t):
    x = mpf("3.75") * (1 + t) / (1 - t)
    return (1 + 2 * x) * exp(x * x) * erfc(x)


emit("ERFC_64", "`(1 + 2 x) exp(x^2) erfc(x)` in t = (x - 3.75) / (x + 3.75), 0 <= x <= 28.", "f64", g_erfc, lambda t: 1 / g_erfc(t), -1, mpf("0.764"), 20)
