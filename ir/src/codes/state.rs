//! E04xx: state, effects, control flow.

use super::{Code, command, graph, late};

pub const CODES: &[Code] = &[
    graph(
        "E0401",
        "an initialiser that needs a call",
        "Initialisers run once, when the program starts, before any entry is called, so they \
         cannot use what is fed or computed in a call.",
        "model g(x: f32[3]) -> f32[3] {\n  var m: f32[3] = x\n  return m\n}\nentry f(x: f32[3]) -> f32[3] {\n  return g(x)\n}\n",
        "model g(x: f32[3]) -> f32[3] {\n  var m: f32[3] = zeros\n  assign(m, x)\n  return m\n}\nentry f(x: f32[3]) -> f32[3] {\n  return g(x)\n}\n",
    ),
    graph(
        "E0402",
        "not a variable",
        "Only variables, declared with `var`, can be written. Everything else keeps its one value.",
        "entry f(x: f32[3]) {\n  assign(x, x + 1)\n}\n",
        "var w: f32[3] = zeros\nentry f(x: f32[3]) {\n  assign(w, x + 1)\n}\n",
    ),
    graph(
        "E0403",
        "a variable without a fixed shape",
        "A variable outlives calls, and the sizes known only at run time may differ between calls.",
        "dim B\nvar w: f32[B] = zeros\nentry f(x: f32[B]) -> f32[B] {\n  return x + w\n}\n",
        "dim B\nvar w: f32[1] = zeros\nentry f(x: f32[B]) -> f32[B] {\n  return x + w\n}\n",
    ),
    graph(
        "E0404",
        "an initial value of a different type",
        "The initial value must have the variable's element type and shape, or be one number for \
         all elements.",
        "var w: f32[3] = [1, 2]\nentry f() -> f32[3] {\n  return w\n}\n",
        "var w: f32[3] = [1, 2, 3]\nentry f() -> f32[3] {\n  return w\n}\n",
    ),
    graph(
        "E0405",
        "a variable without an initial value",
        "Nothing is left undefined: write `= zeros` if that is what you mean.",
        "var w: f32[3]\nentry f() -> f32[3] {\n  return w\n}\n",
        "var w: f32[3] = zeros\nentry f() -> f32[3] {\n  return w\n}\n",
    ),
    graph(
        "E0406",
        "a variable read before it has a value",
        "Initialisers run in the order of the text.",
        "var a: f32[3] = b + 1\nvar b: f32[3] = zeros\nentry f() -> f32[3] {\n  return a\n}\n",
        "var b: f32[3] = zeros\nvar a: f32[3] = b + 1\nentry f() -> f32[3] {\n  return a\n}\n",
    ),
    graph(
        "E0407",
        "`=` on a variable",
        "`=` gives a value a name. To write a variable, use `assign(w, x)`, `w += x` or `w -= x`.",
        "var w: f32[3] = zeros\nentry f(x: f32[3]) {\n  w = x\n}\n",
        "var w: f32[3] = zeros\nentry f(x: f32[3]) {\n  assign(w, x)\n}\n",
    ),
    graph(
        "E0408",
        "`after` without effects",
        "`after` orders effects (reads, writes, `print`, `assert`) of one block. Pure values have no \
         moment at which they happen.",
        "entry f(x: f32[3]) -> f32[3] {\n  y = x + 1\n  print(x) after(y)\n  return y\n}\n",
        "entry f(x: f32[3]) -> f32[3] {\n  p = print(x + 1)\n  print(x) after(p)\n  return x\n}\n",
    ),
    graph(
        "E0409",
        "a variable trained twice",
        "The list after `over` may name each variable only once.",
        "use optim\nvar w: f32[3] = zeros\nentry f(x: f32[3]) {\n  minimize sum(w * x) over [w, w] with optim.sgd(lr: 0.1)\n}\n",
        "use optim\nvar w: f32[3] = zeros\nentry f(x: f32[3]) {\n  minimize sum(w * x) over [w] with optim.sgd(lr: 0.1)\n}\n",
    ),
    graph(
        "E0410",
        "a variable that cannot be trained",
        "Gradients need floats.",
        "use optim\nvar n: i32[] = zeros\nentry f(x: f32[3]) {\n  minimize sum(x) over [n] with optim.sgd(lr: 0.1)\n}\n",
        "use optim\nvar n: f32[] = zeros\nentry f(x: f32[3]) {\n  minimize sum(n * x) over [n] with optim.sgd(lr: 0.1)\n}\n",
    ),
    graph(
        "E0411",
        "nothing to train",
        "`minimize` changes the variables it is given.",
        "use optim\nvar w: f32[3] = zeros\nentry f(x: f32[3]) {\n  minimize sum(w * x) over [] with optim.sgd(lr: 0.1)\n}\n",
        "use optim\nvar w: f32[3] = zeros\nentry f(x: f32[3]) {\n  minimize sum(w * x) over [w] with optim.sgd(lr: 0.1)\n}\n",
    ),
    graph(
        "E0412",
        "one variable, two types",
        "A model has one set of weights, so all its calls must agree on the shapes of the \
         weights. If you call a layer with other shapes, it is another layer: declare a model of \
         it for each.",
        "layer g(x: f32[N]) -> f32[N] {\n  var m: f32[N] = zeros\n  m += x\n  return m\n}\nmodel a = g()\nentry f(x: f32[3]) -> f32[3] {\n  return a(x)\n}\nentry h(x: f32[4]) -> f32[4] {\n  return a(x)\n}\n",
        "layer g(x: f32[N]) -> f32[N] {\n  var m: f32[N] = zeros\n  m += x\n  return m\n}\nmodel a = g()\nmodel b = g()\nentry f(x: f32[3]) -> f32[3] {\n  return a(x)\n}\nentry h(x: f32[4]) -> f32[4] {\n  return b(x)\n}\n",
    ),
    graph(
        "E0413",
        "not a device",
        "A device name has up to three parts, in this order: `/job:NAME`, `/task:N`, and `/cpu:N` \
         or `/gpu:N`.",
        "entry f(x: f32[3]) -> f32[3] {\n  y = x + 1 on \"cpu0\"\n  return y\n}\n",
        "entry f(x: f32[3]) -> f32[3] {\n  y = x + 1 on \"/cpu:0\"\n  return y\n}\n",
    ),
    graph(
        "E0414",
        "not an optimizer",
        "An optimizer is a function whose first parameter is a variable and whose second is its \
         gradient; you give the other parameters after `with`.",
        "use nn\nvar w: f32[3] = zeros\nentry f(x: f32[3]) {\n  minimize sum(w * x) over [w] with nn.softmax()\n}\n",
        "use optim\nvar w: f32[3] = zeros\nentry f(x: f32[3]) {\n  minimize sum(w * x) over [w] with optim.sgd(lr: 0.1)\n}\n",
    ),
    command(
        "E0415",
        "a device the program does not have",
        "`on` says where a variable, a queue or a node lives: on the CPU of the process, \
         `/cpu:0`, or on a GPU, `/gpu:0` and so on. Whether that GPU exists is known only at run \
         time. Any other placement, or a queue on a GPU, would have to be ignored, so it is a \
         compile-time error. `tfc check` and `tfc opt` accept any placement, and every pass keeps \
         it.",
        "entry f(x: f32[3]) -> (y: f32[3]) {\n  on \"/cpu:0\" {\n    y = x + 1.0\n  }\n  return y\n}\n",
        "sed 's/cpu:0/cpu:3/' m.graph > n.graph; tfc run n.graph f --feed x=[1,2,3]",
        "tfc run m.graph f --feed x=[1,2,3]",
    ),
    command(
        "E0416",
        "an impossible placement",
        "`on` always wins, so two placements that contradict each other are an error: a variable \
         and what writes it must be on one task, what a loop or a branch does must be on one \
         task, and a task that `on` names must be in the cluster.",
        "var w: f32[2] = zeros on \"/job:ps/task:0\"\nentry f(x: f32[2]) {\n  assign(w, x) on \"/job:ps\"\n}\n",
        "printf '[job.ps]\\ntasks = [\"a:1\", \"b:1\"]\\n' > c.toml; \
         sed 's@\"/job:ps\"@\"/job:ps/task:1\"@' m.graph > n.graph; \
         tfc opt n.graph --passes place --cluster c.toml",
        "printf '[job.ps]\\ntasks = [\"a:1\", \"b:1\"]\\n' > c.toml; \
         tfc opt m.graph --passes place --cluster c.toml",
    ),
    command(
        "E0417",
        "a loop or a branch on two tasks",
        "A `while` or an `if` runs entirely on one task: its inputs are sent there before it, and \
         its results are sent from there. A `while` on two tasks would have to send its condition \
         in every iteration.",
        "entry f(x: f32[2]) -> (y: f32[2]) {\n  (_i, y) = while (i = 0, y = x) i < 3 {\n    \
         z = exp(y) on \"/job:a/task:0\"\n    w = cos(z) on \"/job:a\"\n    \
         yield i + 1, w\n  }\n  return y\n}\n",
        "printf '[job.a]\\ntasks = [\"a:1\", \"b:1\"]\\n' > c.toml; \
         sed 's@\"/job:a\"@\"/job:a/task:1\"@' m.graph > n.graph; \
         tfc opt n.graph --passes place --cluster c.toml",
        "printf '[job.a]\\ntasks = [\"a:1\", \"b:1\"]\\n' > c.toml; \
         tfc opt m.graph --passes place --cluster c.toml",
    ),
    graph(
        "E0418",
        "a message outside of the part of a task",
        "`send` and `recv` are the ops with which the compiler joins the parts of a graph that it \
         cuts for a cluster. They mean something only in such a part, that is, in an entry placed \
         on a task.",
        "entry f(x: f32[2]) {\n  send(x, to: \"/job:a/task:1\")\n}\n",
        "entry f(x: f32[2]) on \"/job:a/task:0\" {\n  send(x, to: \"/job:a/task:0\")\n}\n",
    ),
    command(
        "E0419",
        "a cluster file that makes no sense",
        "A cluster file is a small TOML: for each job a table with the addresses of its tasks, and \
         the devices of each if it has more than a CPU. The first task of the first job is the \
         chief.\n\n    [job.ps]\n    tasks = [\"10.0.0.1:7000\", \"10.0.0.2:7000\"]\n\n    \
         [job.worker]\n    tasks = [\"10.0.0.3:7000\"]\n    devices = [\"cpu:0\", \"gpu:0\"]",
        "entry f(x: f32[2]) -> (y: f32[2]) {\n  y = exp(x)\n  return y\n}\n",
        "printf '[job.a]\\n' > c.toml; tfc opt m.graph --passes place --cluster c.toml",
        "printf '[job.a]\\ntasks = [\"a:1\"]\\n' > c.toml; \
         tfc opt m.graph --passes place --cluster c.toml",
    ),
    late(
        "E0430",
        "an op on a variable without one",
        "The op reads or writes a variable but was not given one.",
    ),
    graph(
        "E0431",
        "a value that does not fit the variable",
        "What you write to a variable must have the variable's type. A smaller value is repeated; \
         reduce a larger one first, above all along axes of run-time size.",
        "dim B\nvar w: f32[3] = zeros\nentry f(x: f32[B, 3]) {\n  assign(w, x)\n}\n",
        "dim B\nvar w: f32[3] = zeros\nentry f(x: f32[B, 3]) {\n  assign(w, mean(x, axis: 0))\n}\n",
    ),
    graph(
        "E0432",
        "adding to a variable of truth values",
        "You can add only to a variable that holds numbers.",
        "var done: bool[] = false\nentry f(x: i32[]) {\n  done += x\n}\n",
        "var count: i32[] = 0\nentry f(x: i32[]) {\n  count += x\n}\n",
    ),
    graph(
        "E0433",
        "branches that differ",
        "Both branches of an `if` must yield the same number of values with the same types, since \
         the rest of the graph may get either.",
        "entry f(x: f32[3], c: bool[]) -> f32[3] {\n  y = if c { yield x } else { yield sum(x) }\n  return y\n}\n",
        "entry f(x: f32[3], c: bool[]) -> f32[3] {\n  y = if c { yield x } else { yield -x }\n  return y\n}\n",
    ),
    graph(
        "E0434",
        "a condition that is not one truth value",
        "The condition of a `while` must be a single `bool[]`.",
        "entry f(x: f32[3]) -> f32[3] {\n  y = while (a = x) a < 9 { yield a + 1 }\n  return y\n}\n",
        "entry f(x: f32[3]) -> f32[3] {\n  y = while (a = x) any(a < 9) { yield a + 1 }\n  return y\n}\n",
    ),
    graph(
        "E0435",
        "a carried value that changes its type",
        "The values that a `while` carries must keep their number, types and shapes in every \
         iteration.",
        "entry f(x: f32[3]) -> f32[3] {\n  y = while (a = x) any(a < 9) { yield sum(a) }\n  return y\n}\n",
        "entry f(x: f32[3]) -> f32[3] {\n  y = while (a = x) any(a < 9) { yield a + sum(a) }\n  return y\n}\n",
    ),
    graph(
        "E0440",
        "not a queue",
        "`enqueue`, `dequeue` and the like work only on a `queue` or a `reader`.",
        "var w: f32[3] = zeros\nentry f(x: f32[3]) {\n  enqueue(w, x)\n}\n",
        "queue q: fifo(f32[3], capacity: 8)\nentry f(x: f32[3]) {\n  enqueue(q, x)\n}\n",
    ),
    graph(
        "E0441",
        "a queue used as a value",
        "A queue holds elements but is not one: take them out with `dequeue` or `dequeue_many`.",
        "queue q: fifo(f32[3], capacity: 8)\nentry f() -> f32[3] {\n  return q * 2\n}\n",
        "queue q: fifo(f32[3], capacity: 8)\nentry f() -> f32[3] {\n  return dequeue(q) * 2\n}\n",
    ),
    graph(
        "E0442",
        "no such kind of queue or reader",
        "Queues are `fifo`, `shuffle` or `priority`; readers `npy`, `npz`, `csv`, `idx`, `tfrecord` \
         or `files`.",
        "queue q: lifo(f32[3], capacity: 8)\nentry f() -> f32[3] {\n  return dequeue(q)\n}\n",
        "queue q: fifo(f32[3], capacity: 8)\nentry f() -> f32[3] {\n  return dequeue(q)\n}\n",
    ),
    graph(
        "E0443",
        "an option a queue or reader does not take",
        "A queue needs a capacity, because producers wait when it is full. A reader needs its \
         files, and keys if the format has names.",
        "queue q: fifo(f32[3])\nentry f() -> f32[3] {\n  return dequeue(q)\n}\n",
        "queue q: fifo(f32[3], capacity: 8)\nentry f() -> f32[3] {\n  return dequeue(q)\n}\n",
    ),
    graph(
        "E0444",
        "elements without fixed shapes",
        "A queue outlives calls, whose sizes differ, so its elements need fixed shapes. One \
         element is one example; `dequeue_many` makes batches of them.",
        "dim B\nqueue q: fifo(f32[B, 3], capacity: 8)\nentry f(x: f32[B, 3]) {\n  enqueue(q, x)\n}\n",
        "dim B\nqueue q: fifo(f32[3], capacity: 8)\nentry f(x: f32[B, 3]) {\n  enqueue_many(q, x)\n}\n",
    ),
    graph(
        "E0445",
        "parts that do not fit the queue",
        "An element must have the parts of the queue's declaration, in order, with exactly their \
         types. `enqueue_many` takes one more axis in front, the same for all parts.",
        "queue q: fifo(f32[3], i32[], capacity: 8)\nentry f(x: f32[3]) {\n  enqueue(q, x)\n}\n",
        "queue q: fifo(f32[3], i32[], capacity: 8)\nentry f(x: f32[3]) {\n  enqueue(q, x, 1)\n}\n",
    ),
    graph(
        "E0446",
        "more elements than the queue can hold",
        "A batch is taken all at once, so the queue must be able to hold it. A `shuffle` queue \
         draws each element from `min` waiting ones, and needs room for that many more.",
        "queue q: fifo(f32[3], capacity: 8)\nentry f() -> f32[64, 3] {\n  return dequeue_many(q, count: 64)\n}\n",
        "queue q: fifo(f32[3], capacity: 128)\nentry f() -> f32[64, 3] {\n  return dequeue_many(q, count: 64)\n}\n",
    ),
    graph(
        "E0447",
        "a reader that is written to",
        "The records of a reader come from its files; you can only take them out.",
        "reader r: csv(\"data.csv\", f32[3])\nentry f(x: f32[3]) {\n  enqueue(r, x)\n}\n",
        "reader r: csv(\"data.csv\", f32[3])\nentry f(x: f32[3]) -> f32[3] {\n  return dequeue(r) + x\n}\n",
    ),
    graph(
        "E0448",
        "a runner with parameters or results",
        "Nobody calls a runner: the program runs it again and again as long as something needs \
         what it puts into queues.",
        "queue q: fifo(f32[3], capacity: 8)\nrunner fill(x: f32[3]) {\n  enqueue(q, x)\n}\nentry f() -> f32[3] {\n  return dequeue(q)\n}\n",
        "queue q: fifo(f32[3], capacity: 8)\nrunner fill() {\n  enqueue(q, ones(shape: [3]))\n}\nentry f() -> f32[3] {\n  return dequeue(q)\n}\n",
    ),
    graph(
        "E0449",
        "a priority queue without priorities",
        "The first part of a priority queue's elements must be an `i64[]`; the smallest leaves \
         first.",
        "queue q: priority(f32[3], capacity: 8)\nentry f() -> f32[3] {\n  return dequeue(q)\n}\n",
        "queue q: priority(i64[], f32[3], capacity: 8)\nentry f() -> f32[3] {\n  (_, x) = dequeue(q)\n  return x\n}\n",
    ),
    graph(
        "E0450",
        "a runner that fills no queue",
        "The program starts a runner when an entry takes from a queue that the runner fills. A \
         runner that fills none would never run.",
        "queue q: fifo(f32[3], capacity: 8)\nrunner fill() {\n  print(1.0)\n}\nentry f() -> f32[3] {\n  return dequeue(q)\n}\n",
        "queue q: fifo(f32[3], capacity: 8)\nrunner fill() {\n  enqueue(q, ones(shape: [3]))\n}\nentry f() -> f32[3] {\n  return dequeue(q)\n}\n",
    ),
    graph(
        "E0451",
        "a model of something that is not a layer",
        "`model q = critic(units: 64)` makes a model from a layer: one set of the layer's weights \
         under a name. A function has no weights, and a model already has its own set.",
        "use layer\nmodel net(x: f32[2, 3]) {\n  return layer.dense(x, units: 4)\n}\nmodel other = net()\nentry f(x: f32[2, 3]) -> f32[2, 4] {\n  return other(x)\n}\n",
        "use layer\nlayer net(x: f32[2, 3]) {\n  return layer.dense(x, units: 4)\n}\nmodel other = net()\nentry f(x: f32[2, 3]) -> f32[2, 4] {\n  return other(x)\n}\n",
    ),
    graph(
        "E0453",
        "one optimizer used twice for one variable",
        "An optimizer's state is identified by the optimizer's name and the variable: `adam.w.m`. \
         If one entry trains a variable in two places with the same optimizer, it is not clear \
         whether the second should continue with the state of the first. Use `as` to say so: two \
         names for two states, or the same name in both places for one state.",
        "use optim\nvar w: f32[3] = ones\nentry f() {\n  minimize sum(w * w) over [w] with optim.adam(lr: 0.1)\n  minimize sum(w) over [w] with optim.adam(lr: 0.1)\n}\n",
        "use optim\nvar w: f32[3] = ones\nentry f() {\n  minimize sum(w * w) over [w] with optim.adam(lr: 0.1) as first\n  minimize sum(w) over [w] with optim.adam(lr: 0.1) as second\n}\n",
    ),
    graph(
        "E0454",
        "a path that leads to no variable",
        "The name of a model's variable is the path to it: the model, then the calls of layers in \
         it, then the variable. The variables exist once an entry calls the model, whatever the \
         order of the entries; `--signature` lists them.",
        "use layer\nmodel net(x: f32[2, 3]) {\n  return layer.dense(x, units: 4)\n}\nentry f(x: f32[2, 3]) -> f32[2, 4] {\n  return net(x)\n}\nentry size() -> f32[] {\n  return sum(net.dense.weight ** 2)\n}\n",
        "use layer\nmodel net(x: f32[2, 3]) {\n  return layer.dense(x, units: 4)\n}\nentry f(x: f32[2, 3]) -> f32[2, 4] {\n  return net(x)\n}\nentry size() -> f32[] {\n  return sum(net.dense.w ** 2)\n}\n",
    ),
    graph(
        "E0455",
        "a name where there is nothing to name",
        "`as` after a call names the weights of a layer or the state of an optimizer. Calling a \
         model, a function or an op makes no variables. (To name a value, write `name = ..`.)",
        "entry f(x: f32[3]) -> f32[3] {\n  return relu(x) as y\n}\n",
        "entry f(x: f32[3]) -> f32[3] {\n  y = relu(x)\n  return y\n}\n",
    ),
    graph(
        "E0460",
        "something saved without a name",
        "`save` writes each tensor under a name: a variable's name, or the name a value has in \
         the text.",
        "var w: f32[3] = zeros\nentry f(x: f32[3]) {\n  save(w + x, path: \"sum\")\n}\n",
        "var w: f32[3] = zeros\nentry f(x: f32[3]) {\n  sum = w + x\n  save(sum, path: \"sum\")\n}\n",
    ),
    graph(
        "E0461",
        "an empty path",
        "`save` and `restore` need a file name.",
        "var w: f32[3] = zeros\nentry f() {\n  save(w, path: \"\")\n}\n",
        "var w: f32[3] = zeros\nentry f() {\n  save(w, path: \"w\")\n}\n",
    ),
    graph(
        "E0462",
        "names that do not fit what is saved",
        "Each tensor in a file needs its own name.",
        "var w: f32[3] = zeros\nentry f() {\n  save(w, w, path: \"w\")\n}\n",
        "var w: f32[3] = zeros\nentry f() {\n  save(w, path: \"w\")\n}\n",
    ),
    command(
        "E0463",
        "an output that would replace a source",
        "tfc never writes its output over the graph it compiles, nor over a file that the graph \
         uses, even through a link. Choose another name with `-o`.",
        "graph m\nentry f(x: f32[2]) -> f32[2] {\n  return x + 1\n}\n",
        "tfc compile m.graph -o m.graph",
        "tfc compile m.graph -o m",
    ),
    graph(
        "E0470",
        "the lists of a `for` differ in length",
        "`for a in x, b in y` takes one item of each list in every iteration, so the lists must \
         have the same length.",
        "entry f(a: f32[2], b: f32[2]) -> f32[] {\n  s = 0.0\n  for x in [a, b], k in [1.0, 2.0, 3.0] {\n    s = s + k * sum(x)\n  }\n  return s\n}\n",
        "entry f(a: f32[2], b: f32[2]) -> f32[] {\n  s = 0.0\n  for x in [a, b], k in [1.0, 2.0] {\n    s = s + k * sum(x)\n  }\n  return s\n}\n",
    ),
    graph(
        "E0471",
        "a `for` over something other than a list",
        "`for` is written out at compile time: it goes over a list, several results, or a range \
         of whole numbers. Use `while` for the rows of a tensor and for lengths known only at run \
         time.",
        "entry f(x: f32[3]) -> f32[] {\n  s = 0.0\n  for v in x {\n    s = s + v\n  }\n  return s\n}\n",
        "entry f(x: f32[3]) -> f32[] {\n  s = 0.0\n  for i in 0..3 {\n    s = s + x[i]\n  }\n  return s\n}\n",
    ),
    graph(
        "E0472",
        "a `for` with too many iterations",
        "Each iteration of a `for` becomes nodes of the graph. Use `while` for a long loop.",
        "entry f(x: f32[]) -> f32[] {\n  for i in 0..1000000 {\n    x = x * 0.5\n  }\n  return x\n}\n",
        "entry f(x: f32[]) -> f32[] {\n  (n, y) = while (i = 0, y = x) i < 1000000 {\n    yield i + 1, y * 0.5\n  }\n  return y\n}\n",
    ),
    graph(
        "E0473",
        "`through` something other than a function of gradients",
        "`through` needs a function that takes the list of gradients, in the order of the \
         variables, and returns a list with one for each.",
        "use optim\nvar w: f32[3] = ones\nfunc half(grads) {\n  return grads[0] * 0.5\n}\nentry f(x: f32[3]) {\n  minimize sum(x * w) over [w] through half with optim.sgd\n}\n",
        "use optim\nvar w: f32[3] = ones\nfunc half(grads) {\n  return [g * 0.5 for g in grads]\n}\nentry f(x: f32[3]) {\n  minimize sum(x * w) over [w] through half with optim.sgd\n}\n",
    ),
    late(
        "E0490",
        "a limit of the compiler",
        "The graph is correct, but something in it is beyond what this version compiles. The \
         message says what.",
    ),
    late(
        "E0491",
        "a value for a `let` the graph does not have",
        "`--let NAME=VALUE` replaces the value of a top-level `let` in the graph file. Lets in \
         the libraries it uses keep theirs.",
    ),
    late(
        "E0492",
        "a value for a `let` that is not one expression",
        "The text after the `=` of `--let NAME=VALUE` must be one expression of the language: a \
         number, a list such as `[1, 2]`, `true`, or arithmetic with them.",
    ),
    graph(
        "E0493",
        "nothing to train under a name",
        "`over` lists variables, models and parts of models. The one you named has no variables, \
         or the loss does not depend on them.",
        "use optim\nfunc net(x: f32[3]) -> f32[3] {\n  return x * x\n}\nentry f(x: f32[3]) {\n  minimize sum(net(x)) over [net] with optim.sgd(lr: 0.1)\n}\n",
        "use optim\nmodel net(x: f32[3]) -> f32[3] {\n  var w: f32[3] = ones\n  return x * w\n}\nentry f(x: f32[3]) {\n  minimize sum(net(x)) over [net] with optim.sgd(lr: 0.1)\n}\n",
    ),
    graph(
        "E0494",
        "a name's seed without a variable",
        "`name_seed` is a number computed from the name of the variable that is being \
         initialised. Where there is no such variable, write a seed.",
        "use init\nentry f() -> f32[3] {\n  x: f32[3] = init.normal()\n  return x\n}\n",
        "use init\nentry f() -> f32[3] {\n  x: f32[3] = init.normal(seed: 1)\n  return x\n}\n",
    ),
];
