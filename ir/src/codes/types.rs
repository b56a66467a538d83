//! E02xx: types, shapes and attributes.

use super::{Code, graph, late};

pub const CODES: &[Code] = &[
    graph(
        "E0201",
        "too many or too few operands",
        "Each op takes a fixed number of operands, except for a few that take any number. `tfc \
         ops NAME` shows them.",
        "entry f(x: f32[3]) -> f32[3] {\n  return maximum(x)\n}\n",
        "entry f(x: f32[3]) -> f32[3] {\n  return maximum(x, 0)\n}\n",
    ),
    graph(
        "E0202",
        "an element type the op does not take",
        "Some ops work on floats, some on integers, some on truth values. Use `cast` to convert.",
        "entry f(x: i32[3]) -> f32[3] {\n  return exp(x)\n}\n",
        "entry f(x: i32[3]) -> f32[3] {\n  return exp(cast(x, to: f32))\n}\n",
    ),
    graph(
        "E0203",
        "shapes that cannot be joined",
        "Elementwise ops need operands of one shape. Shapes are aligned at their last axes; where \
         sizes differ, one of them must be 1, and is repeated. Sizes with different names count \
         as different, whatever is fed.",
        "dim B\nentry f(x: f32[B, 3], y: f32[B]) -> f32[B, 3] {\n  return x + y\n}\n",
        "dim B\nentry f(x: f32[B, 3], y: f32[B]) -> f32[B, 3] {\n  return x + unsqueeze(y, axis: 1)\n}\n",
    ),
    graph(
        "E0204",
        "an attribute that is missing or unknown",
        "Give attributes by name: `cast(x, to: i32)`. `tfc ops NAME` shows the attributes of an \
         op.",
        "entry f(x: f32[3]) -> f32[] {\n  return sum(x, axs: 0)\n}\n",
        "entry f(x: f32[3]) -> f32[] {\n  return sum(x, axis: 0)\n}\n",
    ),
    graph(
        "E0205",
        "an attribute of the wrong kind",
        "Attributes must be known at compile time: numbers, lists, strings, element types, \
         shapes. A tensor cannot be one.",
        "entry f(x: f32[3]) -> f32[] {\n  return sum(x, axis: \"rows\")\n}\n",
        "entry f(x: f32[3]) -> f32[] {\n  return sum(x, axis: 0)\n}\n",
    ),
    graph(
        "E0206",
        "operands of different element types",
        "Nothing is converted silently, except that a number in the text takes the type of what \
         it meets. Use `cast` to convert.",
        "entry f(x: f32[3], n: i32[3]) -> f32[3] {\n  return x * n\n}\n",
        "entry f(x: f32[3], n: i32[3]) -> f32[3] {\n  return x * cast(n, to: f32)\n}\n",
    ),
    graph(
        "E0207",
        "an axis out of range",
        "Axes count from 0, or from the end as -1, -2, ...",
        "entry f(x: f32[3, 4]) -> f32[3] {\n  return sum(x, axis: 2)\n}\n",
        "entry f(x: f32[3, 4]) -> f32[3] {\n  return sum(x, axis: -1)\n}\n",
    ),
    graph(
        "E0208",
        "an axis named twice",
        "An axis can be reduced, permuted or repeated only once.",
        "entry f(x: f32[3, 4]) -> f32[] {\n  return sum(x, axes: [1, -1])\n}\n",
        "entry f(x: f32[3, 4]) -> f32[] {\n  return sum(x, axes: [0, 1])\n}\n",
    ),
    graph(
        "E0209",
        "axes that do not fit the operand of `broadcast`",
        "`axes` says which result axis each operand axis becomes, in increasing order. Without \
         it, the operand's axes are the last ones.",
        "entry f(x: f32[3]) -> f32[3, 4] {\n  return broadcast(x, shape: [3, 4], axes: [0, 1])\n}\n",
        "entry f(x: f32[3]) -> f32[3, 4] {\n  return broadcast(x, shape: [3, 4], axes: [0])\n}\n",
    ),
    graph(
        "E0210",
        "a shape with a different number of elements",
        "`reshape` keeps every element. One size may be `_`, and is then worked out.",
        "entry f(x: f32[3, 4]) -> f32[6] {\n  return reshape(x, [6])\n}\n",
        "entry f(x: f32[3, 4]) -> f32[6, 2] {\n  return reshape(x, [6, _])\n}\n",
    ),
    graph(
        "E0211",
        "a permutation that leaves out an axis",
        "`perm` must name every axis of the operand once. Without `perm`, all axes are reversed.",
        "entry f(x: f32[2, 3, 4]) -> f32[3, 2, 4] {\n  return transpose(x, perm: [1, 0])\n}\n",
        "entry f(x: f32[2, 3, 4]) -> f32[3, 2, 4] {\n  return transpose(x, perm: [1, 0, 2])\n}\n",
    ),
    graph(
        "E0212",
        "too few axes, or an axis without elements",
        "`matmul` multiplies matrices; `argmax` needs at least one element along its axis.",
        "entry f(x: f32[3, 0]) -> i32[3] {\n  return argmax(x, axis: 1)\n}\n",
        "entry f(x: f32[3, 1]) -> i32[3] {\n  return argmax(x, axis: 1)\n}\n",
    ),
    graph(
        "E0213",
        "inner sizes that differ",
        "In `a @ b` the last axis of `a` meets the second-to-last axis of `b`: [m, k] @ [k, n] is \
         [m, n].",
        "dim B\nvar w: f32[128, 10] = zeros\nentry f(x: f32[B, 784]) -> f32[B, 10] {\n  return x @ w\n}\n",
        "dim B\nvar w: f32[784, 10] = zeros\nentry f(x: f32[B, 784]) -> f32[B, 10] {\n  return x @ w\n}\n",
    ),
    graph(
        "E0214",
        "batches that differ",
        "The axes before the last two are batches; they must agree, or one of them must be 1.",
        "entry f(a: f32[2, 3, 4], b: f32[5, 4, 6]) -> f32[2, 3, 6] {\n  return a @ b\n}\n",
        "entry f(a: f32[2, 3, 4], b: f32[2, 4, 6]) -> f32[2, 3, 6] {\n  return a @ b\n}\n",
    ),
    graph(
        "E0215",
        "two open sizes",
        "Only one size of a shape can be worked out from the others.",
        "entry f(x: f32[12]) -> f32[3, 2, 2] {\n  return reshape(x, [3, _, _])\n}\n",
        "entry f(x: f32[12]) -> f32[3, 2, 2] {\n  return reshape(x, [3, 2, _])\n}\n",
    ),
    graph(
        "E0216",
        "an open size that cannot be worked out",
        "The other sizes must divide the number of elements, for every value of the run-time dims.",
        "dim B\nentry f(x: f32[B]) -> f32[2, B] {\n  return reshape(x, [2, _])\n}\n",
        "dim B\nentry f(x: f32[B, 2]) -> f32[2, B] {\n  return reshape(x, [2, _])\n}\n",
    ),
    graph(
        "E0217",
        "not the declared type",
        "The type you wrote does not match the type the compiler found.",
        "dim B\nentry f(x: f32[B, 3]) -> (y: f32[B]) {\n  return sum(x, axis: 0)\n}\n",
        "dim B\nentry f(x: f32[B, 3]) -> (y: f32[B]) {\n  return sum(x, axis: 1)\n}\n",
    ),
    graph(
        "E0218",
        "a literal that is not rectangular",
        "All rows of a literal must have the same length.",
        "entry f(x: f32[2, 2]) -> f32[2, 2] {\n  return x + [[1, 2], [3]]\n}\n",
        "entry f(x: f32[2, 2]) -> f32[2, 2] {\n  return x + [[1, 2], [3, 4]]\n}\n",
    ),
    graph(
        "E0219",
        "a literal that holds tensors",
        "A literal holds only numbers. Use `stack` or `concat` to join tensors.",
        "entry f(x: f32[]) -> f32[2] {\n  return exp([x, x])\n}\n",
        "entry f(x: f32[]) -> f32[2] {\n  return exp(stack([x, x]))\n}\n",
    ),
    graph(
        "E0220",
        "a number that does not fit its type",
        "A number takes the element type of what it meets and must fit in it: no fractions among \
         integers, nothing out of range.",
        "entry f(x: u8[3]) -> u8[3] {\n  return x + 300\n}\n",
        "entry f(x: u8[3]) -> i32[3] {\n  return cast(x, to: i32) + 300\n}\n",
    ),
    graph(
        "E0221",
        "a literal without a fixed shape",
        "The elements of a literal are in the text, so their number is fixed.",
        "dim B\nentry f(x: f32[B]) -> f32[B] {\n  return x + f32[B](1)\n}\n",
        "dim B\nentry f(x: f32[B]) -> f32[B] {\n  return x + full(1.0, shape: [B])\n}\n",
    ),
    graph(
        "E0222",
        "a literal with missing or surplus elements",
        "A literal must give all elements in order, or one for all of them.",
        "entry f(x: f32[3]) -> f32[3] {\n  return x + f32[3](1, 2)\n}\n",
        "entry f(x: f32[3]) -> f32[3] {\n  return x + f32[3](1, 2, 3)\n}\n",
    ),
    graph(
        "E0223",
        "a size divided by something unknown",
        "A size can be divided by a positive constant (rounding down), or by something that \
         certainly divides it.",
        "dim B, T\nentry f(x: f32[B], y: f32[T]) -> f32[B] {\n  return reshape(x, [B / T, T])\n}\n",
        "dim B, T\nentry f(x: f32[B * T], b: f32[B], t: f32[T]) -> f32[B, T] {\n  return reshape(x, [B, T])\n}\n",
    ),
    graph(
        "E0224",
        "a type that leaves something open",
        "`_` and `..` are allowed only in the types of functions, where the call decides.",
        "entry f(x: f32[..]) -> f32[..] {\n  return x\n}\n",
        "func g(x: f32[..]) {\n  return x\n}\nentry f(x: f32[3]) -> f32[3] {\n  return g(x)\n}\n",
    ),
    graph(
        "E0225",
        "no such element type",
        "The element types are f32, f64, f16, bf16, i8, u8, i32, i64 and bool.",
        "entry f(x: float32[3]) -> f32[3] {\n  return x\n}\n",
        "entry f(x: f32[3]) -> f32[3] {\n  return x\n}\n",
    ),
    graph(
        "E0226",
        "an impossible size",
        "Sizes cannot be negative, and must fit in 63 bits. Write `_` to have a size worked out.",
        "entry f(x: f32[4, 3]) -> f32[12] {\n  return reshape(x, [-1])\n}\n",
        "entry f(x: f32[4, 3]) -> f32[12] {\n  return reshape(x, [_])\n}\n",
    ),
    graph(
        "E0227",
        "not a size",
        "A size is a number, a dim, or an expression of these with `+ - * /`.",
        "dim B\nentry f(x: f32[B ** 2]) -> f32[] {\n  return sum(x)\n}\n",
        "dim B\nentry f(x: f32[B, B]) -> f32[] {\n  return sum(x)\n}\n",
    ),
    graph(
        "E0228",
        "a shape that nothing determines",
        "`zeros` and functions such as `init.normal` take their shape from the type that is asked \
         for. If nothing asks for a type, give one.",
        "use init\nentry f(x: f32[3]) -> f32[3] {\n  y = init.normal(seed: 1)\n  return x + y\n}\n",
        "use init\nentry f(x: f32[3]) -> f32[3] {\n  y: f32[3] = init.normal(seed: 1)\n  return x + y\n}\n",
    ),
    graph(
        "E0229",
        "an argument whose type is not the parameter's",
        "Names in a function's types stand for the same size wherever they occur in the call.",
        "func dot(a: f32[N], b: f32[N]) -> f32[] {\n  return sum(a * b)\n}\nentry f(x: f32[3], y: f32[4]) -> f32[] {\n  return dot(x, y)\n}\n",
        "func dot(a: f32[N], b: f32[N]) -> f32[] {\n  return sum(a * b)\n}\nentry f(x: f32[3], y: f32[3]) -> f32[] {\n  return dot(x, y)\n}\n",
    ),
    graph(
        "E0230",
        "a list of the wrong length",
        "Lists such as `starts`, `window` and `stride` must have one entry for each axis they \
         apply to.",
        "entry f(x: f32[3, 4]) -> f32[2, 4] {\n  return slice(x, starts: [0], ends: [2], strides: [1])\n}\n",
        "entry f(x: f32[3, 4]) -> f32[2, 4] {\n  return slice(x, starts: [0, 0], ends: [2, 4], strides: [1, 1])\n}\n",
    ),
    graph(
        "E0231",
        "a negative size",
        "Sizes given to an op (`depth` of `one_hot`, shapes) cannot be negative.",
        "entry f(x: i32[3]) -> f32[3, 1] {\n  return one_hot(x, depth: -1)\n}\n",
        "entry f(x: i32[3]) -> f32[3, 5] {\n  return one_hot(x, depth: 5)\n}\n",
    ),
    graph(
        "E0232",
        "a single value is needed",
        "The operand must be a scalar: one condition, one start, one key.",
        "entry f(x: f32[3], c: bool[3]) -> f32[3] {\n  y = if c { yield x } else { yield -x }\n  return y\n}\n",
        "entry f(x: f32[3], c: bool[3]) -> f32[3] {\n  return select(c, x, -x)\n}\n",
    ),
    graph(
        "E0233",
        "a step that is not positive",
        "Slices only go forward. Use `reverse` to reverse an axis.",
        "entry f(x: f32[4]) -> f32[4] {\n  return x[::-1]\n}\n",
        "entry f(x: f32[4]) -> f32[4] {\n  return reverse(x, axis: 0)\n}\n",
    ),
    graph(
        "E0234",
        "a slice that does not fit",
        "A slice must lie inside its axis: nothing is clipped silently.",
        "entry f(x: f32[4]) -> f32[5] {\n  return x[0:5]\n}\n",
        "entry f(x: f32[4]) -> f32[3] {\n  return x[0:3]\n}\n",
    ),
    graph(
        "E0235",
        "impossible padding",
        "Padding between elements must be small and not negative, and the element type must be \
         able to hold the padding value.",
        "entry f(x: f32[4]) -> f32[4] {\n  return pad(x, low: [0], high: [0], interior: [-1])\n}\n",
        "entry f(x: f32[4]) -> f32[7] {\n  return pad(x, low: [0], high: [0], interior: [1])\n}\n",
    ),
    graph(
        "E0236",
        "tensors that cannot be joined",
        "`concat` joins along one axis; all other axes must agree.",
        "entry f(x: f32[2, 3], y: f32[2, 4]) -> f32[4, 3] {\n  return concat(x, y, axis: 0)\n}\n",
        "entry f(x: f32[2, 3], y: f32[2, 4]) -> f32[2, 7] {\n  return concat(x, y, axis: 1)\n}\n",
    ),
    graph(
        "E0237",
        "updates that do not fit the rows",
        "`scatter_add` adds one row of `updates` for each of `ids`: updates are [ids.., row..].",
        "entry f(x: f32[4, 3], ids: i32[2], u: f32[2, 5]) -> f32[4, 3] {\n  return scatter_add(x, ids, u)\n}\n",
        "entry f(x: f32[4, 3], ids: i32[2], u: f32[2, 3]) -> f32[4, 3] {\n  return scatter_add(x, ids, u)\n}\n",
    ),
    graph(
        "E0238",
        "a box that does not fit",
        "`dynamic_slice` and `dynamic_update_slice` need one start for each axis, and a box no \
         larger than the tensor.",
        "entry f(x: f32[4, 3], i: i32[]) -> f32[1, 3] {\n  return dynamic_slice(x, i, sizes: [1, 3])\n}\n",
        "entry f(x: f32[4, 3], i: i32[]) -> f32[1, 3] {\n  return dynamic_slice(x, i, 0, sizes: [1, 3])\n}\n",
    ),
    graph(
        "E0239",
        "not images",
        "Convolution and pooling work on [batch, channels, height, width], and filters are [out \
         channels, in channels, rows, columns].",
        "dim B\nentry f(x: f32[B, 28, 28]) -> f32[B, 14, 14] {\n  return max_pool(x, window: [2, 2])\n}\n",
        "dim B\nentry f(x: f32[B, 1, 28, 28]) -> f32[B, 1, 14, 14] {\n  return max_pool(x, window: [2, 2])\n}\n",
    ),
    graph(
        "E0240",
        "channels that do not match",
        "A filter must have as many channels as the image divided by `groups`, which must divide \
         the image's channels.",
        "entry f(x: f32[1, 3, 8, 8], w: f32[4, 2, 3, 3]) -> f32[1, 4, 6, 6] {\n  return conv2d(x, w)\n}\n",
        "entry f(x: f32[1, 3, 8, 8], w: f32[4, 3, 3, 3]) -> f32[1, 4, 6, 6] {\n  return conv2d(x, w)\n}\n",
    ),
    graph(
        "E0241",
        "a window with impossible numbers",
        "Windows, strides and dilations must be at least 1, and padding at least 0.",
        "entry f(x: f32[1, 3, 8, 8]) -> f32[1, 3, 4, 4] {\n  return max_pool(x, window: [0, 2])\n}\n",
        "entry f(x: f32[1, 3, 8, 8]) -> f32[1, 3, 4, 4] {\n  return max_pool(x, window: [2, 2])\n}\n",
    ),
    graph(
        "E0242",
        "a window larger than the image",
        "The window, with its dilation, must fit into the padded image at least once.",
        "entry f(x: f32[1, 3, 2, 2], w: f32[4, 3, 3, 3]) -> f32[1, 4, 1, 1] {\n  return conv2d(x, w)\n}\n",
        "entry f(x: f32[1, 3, 2, 2], w: f32[4, 3, 3, 3]) -> f32[1, 4, 2, 2] {\n  return conv2d(x, w, pad: [1, 1, 1, 1])\n}\n",
    ),
    late(
        "E0243",
        "gradients of a window that do not fit",
        "The printed form of the gradient of a convolution or pooling does not fit its operands. Passes make these, not people.",
    ),
    graph(
        "E0244",
        "more elements than there are",
        "`top_k` and `top_k_index` take the `k` largest elements along an axis, which must have \
         that many.",
        "entry f(x: f32[4, 3]) -> f32[4, 5] {\n  return top_k(x, k: 5, axis: 1)\n}\n",
        "entry f(x: f32[4, 3]) -> f32[4, 2] {\n  return top_k(x, k: 2, axis: 1)\n}\n",
    ),
    graph(
        "E0245",
        "values that cannot be combined over processes",
        "`all_reduce` computes a `mean`, `sum`, `max` or `min`; a mean needs floats.",
        "entry f(n: i32[]) -> i32[] {\n  return all_reduce(n, op: \"mean\")\n}\n",
        "entry f(n: i32[]) -> i32[] {\n  return all_reduce(n, op: \"sum\")\n}\n",
    ),
];
