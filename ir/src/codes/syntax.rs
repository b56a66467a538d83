//! E01xx: syntax and names.

use super::{Code, command, graph, late};

pub const CODES: &[Code] = &[
    graph(
        "E0101",
        "a character that means nothing",
        "The character is not part of the language. Statements end with their line, so there is no \
         `;`. Comments start with `//`, powers are written `**`, `and` and `or` are `&&` and `||`.",
        "entry f(x: f32[3]) -> f32[3] {\n  return x;\n}\n",
        "entry f(x: f32[3]) -> f32[3] {\n  return x\n}\n",
    ),
    graph(
        "E0102",
        "a string without an end",
        "A string starts and ends with `\"` on one line. Write `\\n` for a line break in it.",
        "entry f(x: f32[3]) {\n  print(x, label: \"x is)\n}\n",
        "entry f(x: f32[3]) {\n  print(x, label: \"x is\")\n}\n",
    ),
    graph(
        "E0103",
        "not a number",
        "A number cannot run straight into a name. Integers must fit in 64 bits where they are \
         used.",
        "entry f(x: f32[3]) -> f32[3] {\n  return x * 2x\n}\n",
        "entry f(x: f32[3]) -> f32[3] {\n  return x * 2 * x\n}\n",
    ),
    graph(
        "E0104",
        "something else was expected here",
        "The language does not allow this text here; the message says what it does allow. A \
         statement ends at the end of its line; a line that starts with an operator continues the \
         previous line.",
        "entry f(x: f32[3]) -> f32[3] {\n  y = x +\n  return y\n}\n",
        "entry f(x: f32[3]) -> f32[3] {\n  y = x + 1\n  return y\n}\n",
    ),
    graph(
        "E0105",
        "a bracket is not closed",
        "Every `(`, `[` and `{` needs its partner. The second place in the message is the bracket \
         that is still open.",
        "entry f(x: f32[3]) -> f32[3] {\n  return exp((x + 1)\n}\n",
        "entry f(x: f32[3]) -> f32[3] {\n  return exp(x + 1)\n}\n",
    ),
    graph(
        "E0106",
        "nested too deep",
        "Expressions, blocks and calls can be nested only so deep, but far deeper than people \
         write. Give an inner part a name and use the name.",
        "entry f(x: f32[]) -> f32[] {\n  return x[0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0]\n}\n",
        "entry f(x: f32[2]) -> f32[] {\n  return x[0]\n}\n",
    ),
    graph(
        "E0107",
        "a reserved word as a name",
        "Words such as `var`, `if` and the element types (`f32`, `i32`, ...) cannot name values.",
        "entry f(x: f32[3]) -> f32[3] {\n  while = x + 1\n  return x\n}\n",
        "entry f(x: f32[3]) -> f32[3] {\n  y = x + 1\n  return y\n}\n",
    ),
    graph(
        "E0108",
        "two `graph` lines",
        "A file is one graph and gives its name once.",
        "graph a\ngraph b\nentry f(x: f32[3]) -> f32[3] {\n  return x\n}\n",
        "graph a\nentry f(x: f32[3]) -> f32[3] {\n  return x\n}\n",
    ),
    graph(
        "E0109",
        "not a declaration",
        "The top level may contain `graph`, `use`, `dim`, `let`, `var`, `queue`, `reader`, \
         `func`, `layer`, `model`, `entry`, `runner` and `init`. Statements belong inside entries \
         and functions.",
        "y = 1 + 2\nentry f(x: f32[3]) -> f32[3] {\n  return x\n}\n",
        "let y = 1 + 2\nentry f(x: f32[3]) -> f32[3] {\n  return x * y\n}\n",
    ),
    graph(
        "E0110",
        "comparisons that chain",
        "`a < b < c` would compare a truth value with `c`. Join two comparisons with `&&`.",
        "entry f(x: f32[3]) -> bool[3] {\n  return 0 < x < 1\n}\n",
        "entry f(x: f32[3]) -> bool[3] {\n  return 0 < x && x < 1\n}\n",
    ),
    late(
        "E0111",
        "a graph file of more than 4 GiB",
        "Keep large constants in .npy or .safetensors files and name them with `file(\"w.npy\")`.",
    ),
    graph(
        "E0112",
        "nothing to run",
        "A program does its work through its entries, so a graph without one would do nothing.",
        "graph g\nvar w: f32[3] = zeros\n",
        "graph g\nvar w: f32[3] = zeros\nentry get() -> f32[3] {\n  return w\n}\n",
    ),
    command(
        "E0113",
        "a file is not formatted",
        "`tfc fmt --check` found a file that `tfc fmt` would change. Run `tfc fmt FILE`.",
        "graph m\nentry f(x: f32[2])->f32[2]{\n  return x+1\n}\n",
        "tfc fmt --check m.graph",
        "tfc fmt m.graph && tfc fmt --check m.graph",
    ),
    graph(
        "E0114",
        "an empty range",
        "Give the range of a dim from its smallest to its largest size, both included.",
        "dim B: 8..1\nentry f(x: f32[B]) -> f32[B] {\n  return x\n}\n",
        "dim B: 1..8\nentry f(x: f32[B]) -> f32[B] {\n  return x\n}\n",
    ),
    command(
        "E0115",
        "libraries that use each other",
        "One of the files in the circle must do without the other. Move what both need into a \
         third file.",
        "graph m\nuse \"a.graph\" as a\nentry f(x: f32[2]) -> f32[2] {\n  return a.g(x)\n}\n",
        "printf 'use \"b.graph\" as b\\nfunc g(x) {\\n  return x\\n}\\n' > a.graph; printf 'use \"a.graph\" as a\\n' > b.graph; tfc check m.graph",
        "printf 'func g(x) {\\n  return x\\n}\\n' > a.graph; tfc check m.graph",
    ),
    graph(
        "E0116",
        "no such library",
        "The libraries that come with tfc are `init`, `nn`, `layer` and `optim`. To use a file of \
         your own, write `use \"file.graph\" as name`.",
        "use nnn\nentry f(x: f32[3]) -> f32[3] {\n  return nnn.softmax(x)\n}\n",
        "use nn\nentry f(x: f32[3]) -> f32[3] {\n  return nn.softmax(x)\n}\n",
    ),
    graph(
        "E0117",
        "a library file that cannot be read",
        "The path is relative to the file that uses it.",
        "use \"absent.graph\" as lib\nentry f(x: f32[3]) -> f32[3] {\n  return lib.g(x)\n}\n",
        "func g(x) {\n  return x + 1\n}\nentry f(x: f32[3]) -> f32[3] {\n  return g(x)\n}\n",
    ),
    graph(
        "E0118",
        "a name declared twice",
        "Dims, variables, `let`s and functions share one set of names. So do entries, and so do \
         the parameters of each entry.",
        "var w: f32[3] = zeros\nvar w: f32[4] = zeros\nentry f() -> f32[3] {\n  return w\n}\n",
        "var w: f32[3] = zeros\nvar v: f32[4] = zeros\nentry f() -> f32[3] {\n  return w\n}\n",
    ),
    late(
        "E0119",
        "a graph with too many nodes",
        "Functions are inlined, so functions that call functions that call functions can make a \
         graph too large for any machine. Use `while` for repetition.",
    ),
    graph(
        "E0120",
        "no such dim",
        "Declare sizes that are known only at run time: `dim B`. In a function, a name in a \
         parameter's type that is not declared stands for the size it has in the call.",
        "dim B\nentry f(x: f32[N, 3]) -> f32[N, 3] {\n  return x\n}\n",
        "dim N\nentry f(x: f32[N, 3]) -> f32[N, 3] {\n  return x\n}\n",
    ),
    graph(
        "E0121",
        "not a value",
        "A value is needed here: a name, a number, a call.",
        "entry f(x: f32[3]) -> f32[3] {\n  return x + f32[3]\n}\n",
        "entry f(x: f32[3]) -> f32[3] {\n  return x + f32[3](1, 2, 3)\n}\n",
    ),
    graph(
        "E0122",
        "a `let` defined in terms of itself",
        "A `let` is replaced by its value wherever its name appears, which never ends if the \
         value contains the name.",
        "let a = b + 1\nlet b = a + 1\nentry f(x: f32[3]) -> f32[3] {\n  return x * a\n}\n",
        "let a = 1\nlet b = a + 1\nentry f(x: f32[3]) -> f32[3] {\n  return x * b\n}\n",
    ),
    graph(
        "E0123",
        "no such value",
        "The name is not defined here. A name can be used from its definition to the end of its \
         block.",
        "entry f(image: f32[3]) -> f32[3] {\n  return imgae + 1\n}\n",
        "entry f(image: f32[3]) -> f32[3] {\n  return image + 1\n}\n",
    ),
    graph(
        "E0124",
        "a library without its `use`",
        "Add `use` to make a library available.",
        "entry f(x: f32[3]) -> f32[3] {\n  return nn.softmax(x)\n}\n",
        "use nn\nentry f(x: f32[3]) -> f32[3] {\n  return nn.softmax(x)\n}\n",
    ),
    graph(
        "E0125",
        "no such function in the library",
        "The library has no function of this name.",
        "use nn\nentry f(x: f32[3]) -> f32[3] {\n  return nn.sotfmax(x)\n}\n",
        "use nn\nentry f(x: f32[3]) -> f32[3] {\n  return nn.softmax(x)\n}\n",
    ),
    graph(
        "E0126",
        "no such op or function",
        "`tfc ops` lists the ops. Functions of libraries are called with the library's name: \
         `nn.softmax(x)`.",
        "entry f(x: f32[3]) -> f32[3] {\n  return realu(x)\n}\n",
        "entry f(x: f32[3]) -> f32[3] {\n  return relu(x)\n}\n",
    ),
    graph(
        "E0127",
        "a tensor that is called",
        "Parentheses call ops and functions. Use brackets to take elements.",
        "entry f(x: f32[3]) -> f32[] {\n  return x(0)\n}\n",
        "entry f(x: f32[3]) -> f32[] {\n  return x[0]\n}\n",
    ),
    graph(
        "E0128",
        "not a tensor",
        "A tensor is needed here, but the value is something else: a string, an element type, \
         several values, or an effect without a result.",
        "entry f(x: f32[4]) -> f32[4] {\n  return exp(\"x\")\n}\n",
        "entry f(x: f32[4]) -> f32[4] {\n  return exp(x)\n}\n",
    ),
    graph(
        "E0129",
        "blocks that do not belong",
        "Only ops with regions take blocks, and each takes only its own.",
        "entry f(x: f32[4]) -> f32[4] {\n  return exp(x) body { yield x }\n}\n",
        "entry f(x: f32[4]) -> f32[4] {\n  return exp(x)\n}\n",
    ),
    graph(
        "E0130",
        "an argument given twice",
        "Give an argument by position or by name, not both.",
        "entry f(x: f32[4]) -> f32[] {\n  return sum(x, axis: 0, axes: [0])\n}\n",
        "entry f(x: f32[4]) -> f32[] {\n  return sum(x, axis: 0)\n}\n",
    ),
    graph(
        "E0131",
        "a function that calls itself",
        "Functions are inlined, so a function that calls itself would never end. Use `while` for \
         repetition.",
        "func g(x) {\n  return g(x) + 1\n}\nentry f(x: f32[4]) -> f32[4] {\n  return g(x)\n}\n",
        "func g(x) {\n  return x + 1\n}\nentry f(x: f32[4]) -> f32[4] {\n  return g(g(x))\n}\n",
    ),
    graph(
        "E0132",
        "too many or too few arguments",
        "A call must give every parameter that has no default, and nothing more.",
        "func g(x, y) {\n  return x + y\n}\nentry f(x: f32[4]) -> f32[4] {\n  return g(x)\n}\n",
        "func g(x, y = 1) {\n  return x + y\n}\nentry f(x: f32[4]) -> f32[4] {\n  return g(x)\n}\n",
    ),
    graph(
        "E0133",
        "no such parameter",
        "The function has no parameter of this name.",
        "use nn\nentry f(x: f32[4]) -> f32[4] {\n  return nn.softmax(x, axes: 0)\n}\n",
        "use nn\nentry f(x: f32[4]) -> f32[4] {\n  return nn.softmax(x, axis: 0)\n}\n",
    ),
    graph(
        "E0134",
        "a different number of results than declared",
        "`return` must give as many values as the signature declares.",
        "entry f(x: f32[4]) -> (a: f32[4], b: f32[4]) {\n  return x\n}\n",
        "entry f(x: f32[4]) -> (a: f32[4], b: f32[4]) {\n  return x, x + 1\n}\n",
    ),
    graph(
        "E0135",
        "a statement that never runs",
        "`return` and `yield` end their block.",
        "entry f(x: f32[4]) -> f32[4] {\n  return x\n  y = x + 1\n}\n",
        "entry f(x: f32[4]) -> f32[4] {\n  y = x + 1\n  return y\n}\n",
    ),
    graph(
        "E0136",
        "`return` inside a block",
        "The blocks of `if` and `while` give their values with `yield`.",
        "entry f(x: f32[]) -> f32[] {\n  y = if x > 0 { return x } else { yield -x }\n  return y\n}\n",
        "entry f(x: f32[]) -> f32[] {\n  y = if x > 0 { yield x } else { yield -x }\n  return y\n}\n",
    ),
    graph(
        "E0137",
        "`yield` outside a block",
        "Functions and entries give their values with `return`.",
        "entry f(x: f32[4]) -> f32[4] {\n  yield x\n}\n",
        "entry f(x: f32[4]) -> f32[4] {\n  return x\n}\n",
    ),
    graph(
        "E0138",
        "a value that is not used",
        "A statement that only computes does nothing. Give the value a name, or return it.",
        "entry f(x: f32[4]) -> f32[4] {\n  x + 1\n  return x\n}\n",
        "entry f(x: f32[4]) -> f32[4] {\n  y = x + 1\n  return y\n}\n",
    ),
    graph(
        "E0139",
        "names and values that do not match",
        "The left side of `=` needs as many names as there are values on the right. Use `_` for a \
         value you do not need.",
        "entry f(x: f32[4]) -> f32[2] {\n  (a, b, c) = split(x, parts: 2)\n  return a\n}\n",
        "entry f(x: f32[4]) -> f32[2] {\n  (a, _) = split(x, parts: 2)\n  return a\n}\n",
    ),
    graph(
        "E0140",
        "a parameter an entry cannot have",
        "The parameters of an entry are fed from outside: they are tensors and always given. Only \
         functions can take variables or have defaults.",
        "entry f(x: f32[4], lr: f32[] = 0.1) -> f32[4] {\n  return x * lr\n}\n",
        "entry f(x: f32[4], lr: f32[]) -> f32[4] {\n  return x * lr\n}\n",
    ),
    graph(
        "E0141",
        "a parameter without a type",
        "The types of an entry's parameters say what can be fed; functions may leave types out.",
        "entry f(x) -> f32[4] {\n  return x\n}\n",
        "entry f(x: f32[4]) -> f32[4] {\n  return x\n}\n",
    ),
    graph(
        "E0142",
        "a size that no parameter determines",
        "The dims of an entry get their values from the shapes of the feeds. A dim that is not an \
         axis of any parameter would be unknown.",
        "dim B\nentry f(x: f32[4]) -> f32[B, 4] {\n  return broadcast(x, shape: [B, 4])\n}\n",
        "dim B\nentry f(x: f32[4], like: f32[B]) -> f32[B, 4] {\n  return broadcast(x, shape: [B, 4])\n}\n",
    ),
    graph(
        "E0143",
        "parts that do not make the whole",
        "`split` needs parts that add up to the axis; `squeeze` removes axes of size one only.",
        "entry f(x: f32[5]) -> f32[2] {\n  (a, b) = split(x, parts: 2)\n  return a\n}\n",
        "entry f(x: f32[5]) -> f32[2] {\n  (a, b) = split(x, sizes: [2, 3])\n  return a\n}\n",
    ),
    graph(
        "E0144",
        "a carried value without a first value",
        "Each value that a `while` carries from iteration to iteration needs a first value.",
        "entry f(x: f32[]) -> f32[] {\n  y = while (a) a < 9 { yield a + 1 }\n  return y\n}\n",
        "entry f(x: f32[]) -> f32[] {\n  y = while (a = x) a < 9 { yield a + 1 }\n  return y\n}\n",
    ),
    graph(
        "E0145",
        "an index that does not fit",
        "There can be at most as many indices as axes. `..` may appear once, for the axes not \
         named. Bounds of slices must be known at compile time.",
        "entry f(x: f32[5]) -> f32[] {\n  return x[0, 1]\n}\n",
        "entry f(x: f32[5]) -> f32[] {\n  return x[0]\n}\n",
    ),
    late(
        "E0146",
        "state or entries in a library",
        "Several graphs can use a library, so it holds only functions, layers and models; the \
         variables of its models belong to the graph that calls them.",
    ),
    graph(
        "E0147",
        "a variable in a function",
        "A `func` has no variables of its own. A `layer` makes new ones at each call, and a \
         `model` has one set for all calls. (A function that takes a variable, `var p`, may keep \
         slots for it: this is how optimizers are written.)",
        "func scale(x: f32[N]) {\n  var w: f32[N] = ones\n  return x * w\n}\nentry f(x: f32[3]) -> f32[3] {\n  return scale(x)\n}\n",
        "model scale(x: f32[N]) {\n  var w: f32[N] = ones\n  return x * w\n}\nentry f(x: f32[3]) -> f32[3] {\n  return scale(x)\n}\n",
    ),
    graph(
        "E0148",
        "a layer called outside of models",
        "Each call of a layer makes new weights, and weights belong to models. So only the bodies \
         of models and of other layers may call layers; entries and functions call models.",
        "use layer\nentry f(x: f32[2, 3]) -> f32[2, 4] {\n  return layer.dense(x, units: 4)\n}\n",
        "use layer\nmodel dense = layer.dense(units: 4)\nentry f(x: f32[2, 3]) -> f32[2, 4] {\n  return dense(x)\n}\n",
    ),
    graph(
        "E0149",
        "two parts of one body with one name",
        "The calls in the body of a layer or a model name the weights under it, so each call and \
         each variable there needs its own name.",
        "use layer\nmodel net(x: f32[2, 3]) {\n  h = layer.dense(x, units: 4) as fc\n  return layer.dense(h, units: 4) as fc\n}\nentry f(x: f32[2, 3]) -> f32[2, 4] {\n  return net(x)\n}\n",
        "use layer\nmodel net(x: f32[2, 3]) {\n  h = layer.dense(x, units: 4) as fc1\n  return layer.dense(h, units: 4) as fc2\n}\nentry f(x: f32[2, 3]) -> f32[2, 4] {\n  return net(x)\n}\n",
    ),
    graph(
        "E0150",
        "a number divided by zero",
        "Numbers in the text are computed exactly at compile time, and a division by zero has no \
         result. Infinity is written `inf`; division of tensors follows their element type.",
        "let STEPS = 0\nentry f(x: f32[]) -> f32[] {\n  return x * (1 / STEPS)\n}\n",
        "let STEPS = 4\nentry f(x: f32[]) -> f32[] {\n  return x * (1 / STEPS)\n}\n",
    ),
    graph(
        "E0151",
        "a graph that takes too long to work out",
        "Functions are inlined and `for` is written out at compile time. A function that calls \
         another twice, which calls another twice, and so on, doubles the work with each line. \
         Name a result and use the name; use `while` for loops that run many times.",
        "entry f(x: f32[]) -> f32[] {\n  for i in 0..60000 {\n    for j in 0..60000 {\n      y = x\n    }\n  }\n  return x\n}\n",
        "entry f(x: f32[]) -> f32[] {\n  for i in 0..60 {\n    for j in 0..60 {\n      y = x\n    }\n  }\n  return x\n}\n",
    ),
    graph(
        "E0152",
        "a list that is too long",
        "The compiler holds lists in memory, so their length has a limit. Keep large constants in \
         files.",
        "entry f() -> f32[] {\n  a = [i for i in 0..60000]\n  b = [..a, ..a, ..a, ..a, ..a]\n  c = [..b, ..b, ..b, ..b]\n  return cast(len(c), to: f32)\n}\n",
        "entry f() -> f32[] {\n  a = [i for i in 0..60000]\n  b = [..a, ..a, ..a, ..a, ..a]\n  return cast(len(b), to: f32)\n}\n",
    ),
    command(
        "E0153",
        "a file that is not a graph",
        "A graph is a text file. Models from other systems (ONNX, PyTorch, Keras) must be \
         rewritten in the graph language. Their weights can be read from .safetensors, .npy and \
         .npz files, by a program with `--restore FILE` or in a graph with \
         `file(\"w.safetensors\", key: \"w\")`. Feed data to entries.",
        "graph m\nentry f() -> (y: f32[2]) {\n  return f32[2](1, 2)\n}\n",
        "tfc run m.graph f --out y=y.npy && tfc check y.npy",
        "tfc run m.graph f --out y=y.npy && tfc check m.graph",
    ),
    graph(
        "E0154",
        "a comment that looks like a division",
        "This is a warning. `//` starts a comment, even where Python would divide: `n // 2` is \
         `n`. Write `floor(n / 2)` for a division that rounds down.",
        "let N = 9\nlet HALF = N // 2\nentry f(x: f32[HALF]) -> f32[HALF] {\n  return x\n}\n",
        "let N = 9\nlet HALF = floor(N / 2)\nentry f(x: f32[HALF]) -> f32[HALF] {\n  return x\n}\n",
    ),
];
