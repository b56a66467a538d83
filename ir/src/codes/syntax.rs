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
        "A number cannot run into a name, and must fit: integers in 64 bits where they are used.",
        "entry f(x: f32[3]) -> f32[3] {\n  return x * 2x\n}\n",
        "entry f(x: f32[3]) -> f32[3] {\n  return x * 2 * x\n}\n",
    ),
    graph(
        "E0104",
        "something else was expected",
        "The text does not go on as the language does at this place. The message says what could \
         stand here. A statement ends with its line; a line that starts with an operator continues \
         the one before.",
        "entry f(x: f32[3]) -> f32[3] {\n  y = x +\n  return y\n}\n",
        "entry f(x: f32[3]) -> f32[3] {\n  y = x + 1\n  return y\n}\n",
    ),
    graph(
        "E0105",
        "a bracket is not closed",
        "Every `(`, `[` and `{` needs its partner. The second place in the message is the one that \
         is open.",
        "entry f(x: f32[3]) -> f32[3] {\n  return exp((x + 1)\n}\n",
        "entry f(x: f32[3]) -> f32[3] {\n  return exp(x + 1)\n}\n",
    ),
    graph(
        "E0106",
        "nested too deep",
        "Expressions, blocks and calls inside each other have a limit, far beyond what people \
         write. Give an inner part a name and use the name.",
        "entry f(x: f32[]) -> f32[] {\n  return x[0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0]\n}\n",
        "entry f(x: f32[2]) -> f32[] {\n  return x[0]\n}\n",
    ),
    graph(
        "E0107",
        "a word of the language as a name",
        "Words such as `var`, `if` and the element types (`f32`, `i32`, ...) cannot name values.",
        "entry f(x: f32[3]) -> f32[3] {\n  while = x + 1\n  return x\n}\n",
        "entry f(x: f32[3]) -> f32[3] {\n  y = x + 1\n  return y\n}\n",
    ),
    graph(
        "E0108",
        "two `graph` lines",
        "A file is one graph, and says its name once.",
        "graph a\ngraph b\nentry f(x: f32[3]) -> f32[3] {\n  return x\n}\n",
        "graph a\nentry f(x: f32[3]) -> f32[3] {\n  return x\n}\n",
    ),
    graph(
        "E0109",
        "not a declaration",
        "At the top level stand `graph`, `use`, `dim`, `var`, `let`, `func` and `entry`. Statements \
         stand inside entries and functions.",
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
        "A program does something only through its entries; a graph without one would do nothing.",
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
        "The range of a dim is from its smallest to its largest size, both included.",
        "dim B: 8..1\nentry f(x: f32[B]) -> f32[B] {\n  return x\n}\n",
        "dim B: 1..8\nentry f(x: f32[B]) -> f32[B] {\n  return x\n}\n",
    ),
    command(
        "E0115",
        "libraries that use each other",
        "One of the files in the circle must do without the other. Move what both need into a third.",
        "graph m\nuse \"a.graph\" as a\nentry f(x: f32[2]) -> f32[2] {\n  return a.g(x)\n}\n",
        "printf 'use \"b.graph\" as b\\nfunc g(x) {\\n  return x\\n}\\n' > a.graph; printf 'use \"a.graph\" as a\\n' > b.graph; tfc check m.graph",
        "printf 'func g(x) {\\n  return x\\n}\\n' > a.graph; tfc check m.graph",
    ),
    graph(
        "E0116",
        "no such library",
        "The libraries inside tfc are `init`, `nn` and `optim`. A file of your own is used with \
         `use \"file.graph\" as name`.",
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
        "Dims, variables, `let`s and functions share their names; so do entries, and the parameters \
         of each.",
        "var w: f32[3] = zeros\nvar w: f32[4] = zeros\nentry f() -> f32[3] {\n  return w\n}\n",
        "var w: f32[3] = zeros\nvar v: f32[4] = zeros\nentry f() -> f32[3] {\n  return w\n}\n",
    ),
    late(
        "E0119",
        "a graph of too many nodes",
        "Functions are inlined. Functions that call functions that call functions can make a graph \
         that no machine holds. Repetition is what `while` is for.",
    ),
    graph(
        "E0120",
        "no such dim",
        "Sizes that are known only at run time are declared: `dim B`. In a function, a name in a \
         parameter's type that is not declared stands for the size it has in the call.",
        "dim B\nentry f(x: f32[N, 3]) -> f32[N, 3] {\n  return x\n}\n",
        "dim N\nentry f(x: f32[N, 3]) -> f32[N, 3] {\n  return x\n}\n",
    ),
    graph(
        "E0121",
        "not a value",
        "Here a value is needed: a name, a number, a call.",
        "entry f(x: f32[3]) -> f32[3] {\n  return x + f32[3]\n}\n",
        "entry f(x: f32[3]) -> f32[3] {\n  return x + f32[3](1, 2, 3)\n}\n",
    ),
    graph(
        "E0122",
        "a `let` defined by itself",
        "The value of a `let` is put where its name stands, which never ends if it holds its own \
         name.",
        "let a = b + 1\nlet b = a + 1\nentry f(x: f32[3]) -> f32[3] {\n  return x * a\n}\n",
        "let a = 1\nlet b = a + 1\nentry f(x: f32[3]) -> f32[3] {\n  return x * b\n}\n",
    ),
    graph(
        "E0123",
        "no such value",
        "The name is not defined here. A name is known from its definition to the end of its block.",
        "entry f(image: f32[3]) -> f32[3] {\n  return imgae + 1\n}\n",
        "entry f(image: f32[3]) -> f32[3] {\n  return image + 1\n}\n",
    ),
    graph(
        "E0124",
        "a library not in use",
        "A library is available after `use`.",
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
        "Parentheses call ops and functions. Elements are taken with brackets.",
        "entry f(x: f32[3]) -> f32[] {\n  return x(0)\n}\n",
        "entry f(x: f32[3]) -> f32[] {\n  return x[0]\n}\n",
    ),
    graph(
        "E0128",
        "not a tensor",
        "Here a tensor is needed, but the value is something else: a string, an element type, \
         several values, or an effect without a result.",
        "entry f(x: f32[4]) -> f32[4] {\n  return exp(\"x\")\n}\n",
        "entry f(x: f32[4]) -> f32[4] {\n  return exp(x)\n}\n",
    ),
    graph(
        "E0129",
        "blocks that do not belong",
        "Only ops with regions take blocks, and each of them those of its own.",
        "entry f(x: f32[4]) -> f32[4] {\n  return exp(x) body { yield x }\n}\n",
        "entry f(x: f32[4]) -> f32[4] {\n  return exp(x)\n}\n",
    ),
    graph(
        "E0130",
        "an argument given twice",
        "An argument is given by its position or by its name, not by both.",
        "entry f(x: f32[4]) -> f32[] {\n  return sum(x, axis: 0, axes: [0])\n}\n",
        "entry f(x: f32[4]) -> f32[] {\n  return sum(x, axis: 0)\n}\n",
    ),
    graph(
        "E0131",
        "a function that calls itself",
        "Functions are inlined, so a call of itself would never end. Repetition is `while`.",
        "func g(x) {\n  return g(x) + 1\n}\nentry f(x: f32[4]) -> f32[4] {\n  return g(x)\n}\n",
        "func g(x) {\n  return x + 1\n}\nentry f(x: f32[4]) -> f32[4] {\n  return g(g(x))\n}\n",
    ),
    graph(
        "E0132",
        "too many or too few arguments",
        "A call gives every parameter that has no default, and no more than there are.",
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
        "another number of results than declared",
        "`return` gives as many values as the signature declares.",
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
        "On the left of `=` stand as many names as there are values on the right. `_` takes a value \
         that is not needed.",
        "entry f(x: f32[4]) -> f32[2] {\n  (a, b, c) = split(x, parts: 2)\n  return a\n}\n",
        "entry f(x: f32[4]) -> f32[2] {\n  (a, _) = split(x, parts: 2)\n  return a\n}\n",
    ),
    graph(
        "E0140",
        "a parameter an entry cannot have",
        "What an entry takes is fed from outside: tensors, always given. Variables and defaults \
         belong to functions.",
        "entry f(x: f32[4], lr: f32[] = 0.1) -> f32[4] {\n  return x * lr\n}\n",
        "entry f(x: f32[4], lr: f32[]) -> f32[4] {\n  return x * lr\n}\n",
    ),
    graph(
        "E0141",
        "a parameter without a type",
        "An entry says what may be fed; functions need not.",
        "entry f(x) -> f32[4] {\n  return x\n}\n",
        "entry f(x: f32[4]) -> f32[4] {\n  return x\n}\n",
    ),
    graph(
        "E0142",
        "a size that no parameter tells",
        "The dims of an entry get their values from the shapes of what is fed. A dim that no \
         parameter has as an axis would be unknown.",
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
        "What a `while` carries from iteration to iteration starts with something.",
        "entry f(x: f32[]) -> f32[] {\n  y = while (a) a < 9 { yield a + 1 }\n  return y\n}\n",
        "entry f(x: f32[]) -> f32[] {\n  y = while (a = x) a < 9 { yield a + 1 }\n  return y\n}\n",
    ),
    graph(
        "E0145",
        "an index that does not fit",
        "There are at most as many indices as axes; `..` stands once for those not named; bounds of \
         slices are known when the graph is compiled.",
        "entry f(x: f32[5]) -> f32[] {\n  return x[0, 1]\n}\n",
        "entry f(x: f32[5]) -> f32[] {\n  return x[0]\n}\n",
    ),
    late(
        "E0146",
        "state or entries in a library",
        "A library is used by several graphs. It has functions, layers and models; the variables \
         of its models belong to the graph that calls them.",
    ),
    graph(
        "E0147",
        "a variable in a function",
        "A `func` has no variables of its own. A `layer` makes new ones at each call, a `model` has \
         one set for all calls. (A function that takes a variable, `var p`, may keep slots for it: \
         that is how optimizers are written.)",
        "func scale(x: f32[N]) {\n  var w: f32[N] = ones\n  return x * w\n}\nentry f(x: f32[3]) -> f32[3] {\n  return scale(x)\n}\n",
        "model scale(x: f32[N]) {\n  var w: f32[N] = ones\n  return x * w\n}\nentry f(x: f32[3]) -> f32[3] {\n  return scale(x)\n}\n",
    ),
    graph(
        "E0148",
        "a layer called outside of models",
        "Each call of a layer makes new weights, and weights live in models. So layers are called \
         in the bodies of models and of other layers; entries and functions call models.",
        "use layer\nentry f(x: f32[2, 3]) -> f32[2, 4] {\n  return layer.dense(x, units: 4)\n}\n",
        "use layer\nmodel dense = layer.dense(units: 4)\nentry f(x: f32[2, 3]) -> f32[2, 4] {\n  return dense(x)\n}\n",
    ),
    graph(
        "E0149",
        "two parts of one body with one name",
        "The weights under a layer or a model are named by the calls in its body, so each call and \
         each variable there needs a name of its own.",
        "use layer\nmodel net(x: f32[2, 3]) {\n  h = layer.dense(x, units: 4) as fc\n  return layer.dense(h, units: 4) as fc\n}\nentry f(x: f32[2, 3]) -> f32[2, 4] {\n  return net(x)\n}\n",
        "use layer\nmodel net(x: f32[2, 3]) {\n  h = layer.dense(x, units: 4) as fc1\n  return layer.dense(h, units: 4) as fc2\n}\nentry f(x: f32[2, 3]) -> f32[2, 4] {\n  return net(x)\n}\n",
    ),
    graph(
        "E0150",
        "a number divided by zero",
        "Numbers in the text are worked out exactly when the graph is compiled, and no number is the \
         result of a division by zero. Infinity is written `inf`; tensors divide as their element \
         type does.",
        "let STEPS = 0\nentry f(x: f32[]) -> f32[] {\n  return x * (1 / STEPS)\n}\n",
        "let STEPS = 4\nentry f(x: f32[]) -> f32[] {\n  return x * (1 / STEPS)\n}\n",
    ),
    graph(
        "E0151",
        "a graph that takes too long to work out",
        "Functions are inlined and `for` is written out when the graph is compiled. A function that \
         calls another twice, which calls another twice, and so on, doubles the work with each \
         line. Name a result and use the name; loops that run many times are `while`.",
        "entry f(x: f32[]) -> f32[] {\n  for i in 0..60000 {\n    for j in 0..60000 {\n      y = x\n    }\n  }\n  return x\n}\n",
        "entry f(x: f32[]) -> f32[] {\n  for i in 0..60 {\n    for j in 0..60 {\n      y = x\n    }\n  }\n  return x\n}\n",
    ),
    graph(
        "E0152",
        "a list that is too long",
        "Lists are held in memory while the graph is compiled, so their length has a limit. Large \
         constants are kept in files.",
        "entry f() -> f32[] {\n  a = [i for i in 0..60000]\n  b = [..a, ..a, ..a, ..a, ..a]\n  c = [..b, ..b, ..b, ..b]\n  return cast(len(c), to: f32)\n}\n",
        "entry f() -> f32[] {\n  a = [i for i in 0..60000]\n  b = [..a, ..a, ..a, ..a, ..a]\n  return cast(len(b), to: f32)\n}\n",
    ),
    command(
        "E0153",
        "a file that is not a graph",
        "A graph is a text file. Models of other systems (ONNX, PyTorch, Keras) are written anew in \
         the graph language; their weights can be read from .safetensors, .npy and .npz files, by a \
         program with `--restore FILE` or in a graph with `file(\"w.safetensors\", key: \"w\")`. Data \
         is fed to entries.",
        "graph m\nentry f() -> (y: f32[2]) {\n  return f32[2](1, 2)\n}\n",
        "tfc run m.graph f --out y=y.npy && tfc check y.npy",
        "tfc run m.graph f --out y=y.npy && tfc check m.graph",
    ),
    graph(
        "E0154",
        "a comment that looks like a division",
        "A warning. `//` starts a comment, also where Python would divide: `n // 2` is `n`. A division \
         that rounds down is `floor(n / 2)`.",
        "let N = 9\nlet HALF = N // 2\nentry f(x: f32[HALF]) -> f32[HALF] {\n  return x\n}\n",
        "let N = 9\nlet HALF = floor(N / 2)\nentry f(x: f32[HALF]) -> f32[HALF] {\n  return x\n}\n",
    ),
];
