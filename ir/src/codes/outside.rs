//! E05xx to E09xx: feeds and run-time checks, state files, peers, toolchain and
//! files, command line, bugs.

use super::{Code, command, graph, late};

pub const CODES: &[Code] = &[
    command(
        "E0501",
        "a feed is missing",
        "Every parameter of the entry must be fed: `--feed x=x.npy`. `--signature` prints a line \
         ready to paste.",
        "graph m\ndim B\nentry f(x: f32[B, 2], y: i32[B]) -> f32[B, 2] {\n  return x * cast(reshape(y, [B, 1]), to: f32)\n}\n",
        "tfc run m.graph f --feed 'x=[[1, 2]]'",
        "tfc run m.graph f --feed 'x=[[1, 2]]' --feed 'y=[3]'",
    ),
    command(
        "E0502",
        "a feed or value the entry does not take",
        "The entry has no parameter of this name, or you gave more than it takes. `--signature` \
         lists them.",
        "graph m\nentry f(x: f32[2]) -> f32[2] {\n  return x + 1\n}\n",
        "tfc compile m.graph -o m && ./m f --feed 'y=[1, 2]'",
        "tfc compile m.graph -o m && ./m f --feed 'x=[1, 2]'",
    ),
    command(
        "E0503",
        "a feed with a different element type",
        "Nothing is converted silently: store the array in the type the entry asks for.",
        "graph m\nentry ints() -> (n: i32[2]) {\n  return i32[2](1, 2)\n}\nentry floats() -> (n: f32[2]) {\n  return f32[2](1, 2)\n}\nentry f(x: f32[2]) -> f32[2] {\n  return x + 1\n}\n",
        "tfc run m.graph ints --out n=n.npy && tfc run m.graph f --feed x=n.npy",
        "tfc run m.graph floats --out n=n.npy && tfc run m.graph f --feed x=n.npy",
    ),
    command(
        "E0504",
        "a feed with a different rank",
        "The array has more or fewer axes than the parameter.",
        "graph m\ndim B\nentry f(x: f32[B, 2], y: i32[B]) -> f32[B, 2] {\n  return x * cast(reshape(y, [B, 1]), to: f32)\n}\n",
        "tfc run m.graph f --feed 'x=[1, 2]' --feed 'y=[3]'",
        "tfc run m.graph f --feed 'x=[[1, 2]]' --feed 'y=[3]'",
    ),
    command(
        "E0505",
        "a feed with a different size",
        "An axis of the array has a size the parameter does not allow.",
        "graph m\nentry f(x: f32[2]) -> f32[2] {\n  return x + 1\n}\n",
        "tfc run m.graph f --feed 'x=[1, 2, 3]'",
        "tfc run m.graph f --feed 'x=[1, 2]'",
    ),
    command(
        "E0506",
        "feeds that disagree",
        "A named dim has one value in a call: the feeds for `x: f32[B, 3]` and `y: i32[B]` must \
         have equal numbers of rows.",
        "graph m\ndim B\nentry f(x: f32[B, 2], y: i32[B]) -> f32[B, 2] {\n  return x * cast(reshape(y, [B, 1]), to: f32)\n}\n",
        "tfc run m.graph f --feed 'x=[[1, 2], [3, 4]]' --feed 'y=[5]'",
        "tfc run m.graph f --feed 'x=[[1, 2], [3, 4]]' --feed 'y=[5, 6]'",
    ),
    command(
        "E0507",
        "a size out of its range",
        "The dim was declared with a range, `dim B: 1..256`, and the feed is outside it.",
        "graph m\ndim B: 1..2\nentry f(x: f32[B]) -> f32[B] {\n  return x + 1\n}\n",
        "tfc run m.graph f --feed 'x=[1, 2, 3]'",
        "tfc run m.graph f --feed 'x=[1, 2]'",
    ),
    command(
        "E0508",
        "an impossible size",
        "`tfc bench` makes its own inputs. With the sizes you gave, an axis of one of them would \
         be negative.",
        "graph m\ndim B\nentry f(x: f32[B - 4], y: f32[B]) -> f32[B - 4] {\n  return x + y[4:]\n}\n",
        "tfc bench m.graph --calls 1 --dim B=2",
        "tfc bench m.graph --calls 1 --dim B=8",
    ),
    command(
        "E0509",
        "an assertion failed",
        "An `assert` in the graph found its condition false; the message comes from the graph.",
        "graph m\nentry f(x: f32[2]) -> f32[2] {\n  assert(all(x > 0), message: \"x must be positive\")\n  return log(x)\n}\n",
        "tfc run m.graph f --feed 'x=[1, -2]'",
        "tfc run m.graph f --feed 'x=[1, 2]'",
    ),
    command(
        "E0510",
        "an index out of range",
        "Indices count from 0 and must be below the size of the axis. This covers the indices of \
         `gather` and `table[ids]`, of rows to update, starts of dynamic slices, and class \
         numbers (`one_hot`, `nn.softmax_xent`). Negative indices are errors too; only constants \
         in the graph may count from the end (`x[-1]`). The call fails before it changes a \
         variable. To take the nearest entry instead, write `bounds: \"clamp\"` (for `one_hot`, \
         `bounds: \"drop\"` gives zeros); `--unchecked` does so everywhere.",
        "graph m\nentry f(rows: f32[2, 1], ids: i32[2]) -> f32[3, 1] {\n  return scatter_add(zeros(shape: [3, 1], dtype: f32), ids, rows)\n}\n",
        "tfc run m.graph f --feed 'rows=[[1], [2]]' --feed 'ids=[0, 3]'",
        "tfc run m.graph f --feed 'rows=[[1], [2]]' --feed 'ids=[0, 2]'",
    ),
    command(
        "E0511",
        "a damaged .npy file",
        "The file does not start as a .npy file does, or ends too early. `numpy.save` writes such files.",
        "graph m\nentry ints() -> (n: i32[2]) {\n  return i32[2](1, 2)\n}\nentry floats() -> (n: f32[2]) {\n  return f32[2](1, 2)\n}\nentry f(x: f32[2]) -> f32[2] {\n  return x + 1\n}\n",
        "echo hello > n.npy && tfc run m.graph f --feed x=n.npy",
        "tfc run m.graph floats --out n=n.npy && tfc run m.graph f --feed x=n.npy",
    ),
    command(
        "E0512",
        "a damaged .npz file",
        "The file is not a .npz archive, or ends too early. `numpy.savez` writes such files.",
        "graph m\nentry ints() -> (n: i32[2]) {\n  return i32[2](1, 2)\n}\nentry floats() -> (n: f32[2]) {\n  return f32[2](1, 2)\n}\nentry f(x: f32[2]) -> f32[2] {\n  return x + 1\n}\n",
        "echo hello > n.npz && tfc run m.graph f --feed x=n.npz",
        "tfc run m.graph floats --out n=n.npz && tfc run m.graph f --feed x=n.npz",
    ),
    command(
        "E0513",
        "a malformed value",
        "A value on the command line is a number, a list such as `[[1, 2], [3, 4]]`, or a file.",
        "graph m\nentry f(x: f32[2]) -> f32[2] {\n  return x + 1\n}\n",
        "tfc run m.graph f --feed 'x=[1, 2'",
        "tfc run m.graph f --feed 'x=[1, 2]'",
    ),
    command(
        "E0514",
        "an unknown kind of data file",
        "Data files are .npy, .npz and .safetensors.",
        "graph m\nentry ints() -> (n: i32[2]) {\n  return i32[2](1, 2)\n}\nentry floats() -> (n: f32[2]) {\n  return f32[2](1, 2)\n}\nentry f(x: f32[2]) -> f32[2] {\n  return x + 1\n}\n",
        "tfc run m.graph floats --out n=n.csv",
        "tfc run m.graph floats --out n=n.npy",
    ),
    command(
        "E0515",
        "no such array in the file",
        "Add the name of the array after the file: `--feed x=data.npz:x`. An archive with a \
         single array needs no name.",
        "graph m\nentry two() -> (a: f32[1], b: f32[1]) {\n  return f32[1](1), f32[1](2)\n}\nentry f(x: f32[1]) -> f32[1] {\n  return x + 1\n}\n",
        "tfc run m.graph two --out a=ab.npz --out b=ab.npz && tfc run m.graph f --feed x=ab.npz",
        "tfc run m.graph two --out a=ab.npz --out b=ab.npz && tfc run m.graph f --feed x=ab.npz:a",
    ),
    command(
        "E0516",
        "sizes too large",
        "The sizes of this call need more memory than there is, or more than can be counted.",
        "graph m\ndim B\nentry f(x: f32[B]) -> f32[] {\n  big = broadcast(x, shape: [B * 1_000_000, B * 1_000_000, B])\n  return sum(cumsum(big, axis: 0))\n}\n",
        "tfc run m.graph f --feed 'x=[1, 2, 3, 4]'",
        "tfc run m.graph f --feed 'x=[]'",
    ),
    late("E0517", "a dim that nothing determines", "No feed has an axis of this dim."),
    command(
        "E0518",
        "sizes an op cannot work with",
        "An op in the graph needs sizes that the feeds of this call do not have: a slice may end \
         past the last element, or a window may be larger than the image. The message says which.",
        "graph m\ndim B\nentry f(x: f32[B]) -> f32[3] {\n  return x[0:3]\n}\n",
        "tfc run m.graph f --feed 'x=[1, 2]'",
        "tfc run m.graph f --feed 'x=[1, 2, 3]'",
    ),
    late("E0519", "data that cannot be used", "The file was read, but its contents do not fit."),
    command(
        "E0520",
        "something given twice",
        "Name each feed or result only once.",
        "graph m\nentry f(x: f32[2]) -> f32[2] {\n  return x + 1\n}\n",
        "tfc run m.graph f --feed 'x=[1, 2]' --feed 'x=[3, 4]'",
        "tfc run m.graph f --feed 'x=[1, 2]'",
    ),
    command(
        "E0521",
        "no such result",
        "The entry has no result of this name or number.",
        "graph m\nentry ints() -> (n: i32[2]) {\n  return i32[2](1, 2)\n}\nentry floats() -> (n: f32[2]) {\n  return f32[2](1, 2)\n}\nentry f(x: f32[2]) -> f32[2] {\n  return x + 1\n}\n",
        "tfc run m.graph floats --out y=y.npy",
        "tfc run m.graph floats --out n=n.npy",
    ),
    late(
        "E0522",
        "memory that does not fit a result",
        "A caller from C or Rust provided memory for the results that is too small, misaligned, \
         or meant for a different number of results.",
    ),
    command(
        "E0523",
        "an entry that cannot be run in batches",
        "`--batch`, `--epochs`, `--steps` and `--shuffle` cut the feeds along the run-time dim \
         that is their first size. The entry has no such dim or two different ones, or the feeds \
         hold no examples.",
        "graph m\nentry f(x: f32[2]) -> f32[2] {\n  return x + 1\n}\n",
        "tfc run m.graph f --feed 'x=[1, 2]' --batch 1",
        "tfc run m.graph f --feed 'x=[1, 2]'",
    ),
    late(
        "E0524",
        "a cancelled call",
        "The call's cancel token was cancelled while the call waited or was between two \
         iterations of a loop. Its variables are as they were before the call, or as it left them \
         when it began to wait for a queue.",
    ),
    late(
        "E0525",
        "a call past its deadline",
        "The call was still waiting, or still in a loop, at its deadline. Its variables are as \
         they were before the call, or as it left them when it began to wait for a queue.",
    ),
    late(
        "E0526",
        "old variables for a call that writes some",
        "A call with `stale_ok` reads the last complete version of the variables while another \
         call writes them. An entry that itself writes variables needs their current values: call \
         it without `stale_ok`.",
    ),
    graph(
        "E0530",
        "a data file with a different element type",
        "`file(..)` takes the array as it is; use `cast` to convert it.",
        "var w: f32[2] = file(\"int_2.npy\")\nentry f() -> f32[2] {\n  return w\n}\n",
        "var w: f32[2] = cast(file(\"int_2.npy\"), to: f32)\nentry f() -> f32[2] {\n  return w\n}\n",
    ),
    graph(
        "E0531",
        "a data file that cannot be read",
        "The path is relative to the graph file; a .safetensors or .npz file needs `key:`.",
        "var w: f32[2] = file(\"absent.npy\")\nentry f() -> f32[2] {\n  return w\n}\n",
        "var w: f32[2] = file(\"float_2.npy\")\nentry f() -> f32[2] {\n  return w\n}\n",
    ),
    graph(
        "E0532",
        "a `bounds` that the op does not have",
        "`bounds` says what happens to an index that is out of range. `\"check\"`, the default, \
         fails the call. `gather`, `dynamic_slice` and `dynamic_update_slice` can also \
         `\"clamp\"` it to the nearest that fits. With `\"drop\"`, `one_hot` gives zeros and \
         `scatter_add` leaves the row out.",
        "entry f(x: f32[5], i: i32[2]) -> f32[2] {\n  return gather(x, i, bounds: \"drop\")\n}\n",
        "entry f(x: f32[5], i: i32[2]) -> f32[2] {\n  return gather(x, i, bounds: \"clamp\")\n}\n",
    ),
    command(
        "E0533",
        "a loss that is not finite",
        "The value that `minimize` reduces came out as NaN or infinite, so its gradients would \
         spoil every variable. The call failed before it changed them; `--state` and checkpoints \
         hold the last good state. Common causes are a NaN in the data, a learning rate that is \
         too high, or a `log` or a division that meets zero: `tfc run GRAPH .. --check-numerics` \
         names the operation. `--allow-nan` continues regardless.",
        "graph m\nuse optim\nvar w: f32[] = 1\nentry f(x: f32[]) {\n  minimize (w * x) ** 2 with optim.sgd(lr: 0.1)\n}\n",
        "tfc run m.graph f --feed x=nan",
        "tfc run m.graph f --feed x=0.5",
    ),
    command(
        "E0534",
        "a variable that is not finite cannot be saved",
        "A variable holds NaN, or an infinity it did not start with. Saving it would replace a \
         good file with a bad one, so the file was left as it was. `tfc run GRAPH .. \
         --check-numerics` finds where such numbers come from; `--allow-nan` saves them.",
        "graph m\nvar w: f32[] = 1\nentry f(x: f32[]) {\n  w += x\n}\n",
        "tfc run m.graph f --feed x=nan --state s.safetensors",
        "tfc run m.graph f --feed x=2 --state s.safetensors",
    ),
    command(
        "E0535",
        "an operation that makes NaN or infinity",
        "`--check-numerics` checks every result. This operation is the first to make a NaN from \
         operands without one, or an infinity from finite ones; the notes say what it was \
         computed from. If a feed or variable already holds a NaN, that is named instead.",
        "graph m\nentry f(x: f32[2]) -> f32[2] {\n  return log(x)\n}\n",
        "tfc run --check-numerics m.graph f --feed 'x=[1, -1]'",
        "tfc run --check-numerics m.graph f --feed 'x=[1, 2]'",
    ),
    late(
        "E0550",
        "an empty stack",
        "`stack_pop` takes what `stack_push` put there earlier in the same call. Compiled \
         gradients keep the two in step; a graph that uses stacks itself must do so too.",
    ),
    late(
        "E0551",
        "a loop that keeps too much",
        "The gradient of a loop keeps values of every iteration. `--loop-memory` limits that: the \
         backward pass then recomputes the iterations, some at a time.",
    ),
    late(
        "E0560",
        "the end of the input",
        "A queue was closed and is empty, or a reader has given its last record. A run ends here; \
         this is not a failure. In Rust, `Error::is_end_of_input` tells the two apart.",
    ),
    late(
        "E0561",
        "an element for a closed queue",
        "After `close` you cannot put anything into a queue. Runners that try simply end.",
    ),
    late(
        "E0562",
        "a wait that would never end",
        "The queue has too few elements (or is full), and nothing that is still running would \
         change that. Add a runner that fills it, or close it when nothing more will come. If an \
         entry and its runners wait for each other, the notes say which of them waits where and \
         for what. Most often, a runner fills a queue that nobody takes from.",
    ),
    late(
        "E0563",
        "no files for a reader",
        "Nothing matches the path. It is relative to where the program was started; `--data \
         READER=PATH` gives another.",
    ),
    late(
        "E0564",
        "a malformed CSV file",
        "Every line must have as many numbers as a record has elements, over all its parts. \
         `skip: 1` leaves out a line of names at the start.",
    ),
    late(
        "E0565",
        "a malformed IDX file",
        "The file is not in the format of the MNIST data, or is cut short.",
    ),
    late(
        "E0566",
        "a malformed TFRecord file",
        "A length or a checksum is wrong, the file is cut short, or a record lacks a feature. The \
         message says at which byte the record starts.",
    ),
    late(
        "E0567",
        "records with a different type",
        "The rows of the file are not what the reader declares. Declare the type in the file, and \
         use `cast` or `reshape` in the graph.",
    ),
    late(
        "E0568",
        "a position outside the data",
        "The files have fewer records than when the position was saved, or the position belongs \
         to another program.",
    ),
    late(
        "E0569",
        "an element that does not fit its queue",
        "From Rust, an element must be one array for each part of the queue's declaration.",
    ),
    late("E0570", "no such queue or reader", "The program declares no queue of this name."),
    late(
        "E0571",
        "stopped while waiting",
        "The runners were stopped while a call waited for a queue.",
    ),
    late(
        "E0580",
        "a torn checkpoint",
        "A file of the checkpoint is missing, cut short, or does not match the hash in its \
         manifest. A run with `--resume` uses the newest checkpoint that is whole; `tfc ckpt \
         verify DIR` checks all of them.",
    ),
    late(
        "E0581",
        "a checkpoint of another graph",
        "Only the graph that saved a run can resume it. `--restore FILE` takes the variables that \
         fit from any graph's checkpoint, and starts a new run.",
    ),
    late(
        "E0582",
        "no usable checkpoint",
        "There are checkpoints, but each is torn or belongs to another graph; the notes say which.",
    ),
    late(
        "E0583",
        "a directory with checkpoints of another run",
        "A new run does not mix its checkpoints with those of an older one. `--resume` continues \
         the old run; another directory keeps both.",
    ),
    late(
        "E0584",
        "nothing to restore",
        "No tensor in the file has the name and type of a variable. `--restore-map NEW=OLD` says \
         how names begin in the file: with `--restore-map encoder.=bert.` the variable \
         `encoder.w` is taken from `bert.w`.",
    ),
    late(
        "E0585",
        "checkpoint options that do not fit",
        "`--save-every`, `--keep` and `--resume` concern the checkpoints in `--checkpoint-dir`, \
         and only an entry that changes variables has something to save.",
    ),
    late(
        "E0586",
        "data that differs from that of the run to resume",
        "A resumed run continues in the middle of its data, so the entry, the batches, the data \
         and its order must be those of the saved run. `--resume-anyway` continues with what \
         there is now.",
    ),
    late(
        "E0587",
        "a state file that is a checkpoint",
        "The program reads and writes `--state`, but the data of a checkpoint must stay what its \
         manifest says. Use `--restore`, which only reads it.",
    ),
    command(
        "E0588",
        "a name that a state file cannot have",
        "`--state` is a .safetensors file, read if it is there and written by an entry that \
         changes variables. For a directory with checkpoints, use `--checkpoint-dir` or \
         `--restore`.",
        "graph m\nvar n: i32[] = 0\nentry step(by: i32[]) -> (now: i32[]) {\n  n += by\n  return n\n}\n",
        "tfc run m.graph step --feed by=1 --state s.npz",
        "tfc run m.graph step --feed by=1 --state s.safetensors",
    ),
    command(
        "E0589",
        "a result that is not complete",
        "The run was already complete and computes nothing more, so there is nothing to write. \
         Rows from before a resume are kept in the checkpoint directory only if `--out` asked for \
         them from the start; otherwise only the rest is written, with a warning.",
        "graph m\ndim B\nvar n: f32[] = 0\nentry step(x: f32[B]) -> (y: f32[B]) {\n  n += sum(x)\n  return x * 2.0\n}\n",
        "tfc run m.graph step --feed x=[1,2,3] --batch 1 --checkpoint-dir c && tfc run m.graph step --feed x=[1,2,3] --batch 1 --checkpoint-dir c --resume --out y=y.npy",
        "tfc run m.graph step --feed x=[1,2,3] --batch 1 --checkpoint-dir c --out y=y.npy",
    ),
    late(
        "E0590",
        "a checkpoint directory in use",
        "Only one run at a time may save to a directory: two would overwrite and remove each \
         other's checkpoints. The lock goes away with the process that holds it, however the \
         process ends.",
    ),
    command(
        "E0591",
        "a pipeline that cannot be resumed",
        "A resumed run gets the elements that would have come next, if they depend only on the \
         input. They do not if runners race each other, if a priority queue is filled while it is \
         emptied, or if a runner uses variables that the entry changes. Checkpoints are saved \
         with a warning; `--resume-anyway` continues with whatever data comes.",
        "graph m\nvar n: i64[] = 0\nvar k: i64[] = 0\nqueue q: priority(i64[], capacity: 4)\nrunner fill() {\n  k += 1\n  enqueue(q, k)\n}\nentry next() -> (x: i64[]) {\n  x = dequeue(q)\n  n += x\n  return n\n}\n",
        "tfc run m.graph next --steps 2 --checkpoint-dir c && tfc run m.graph next --steps 4 --checkpoint-dir c --resume",
        "tfc run m.graph next --steps 2 --checkpoint-dir c && tfc run m.graph next --steps 4 --checkpoint-dir c --resume-anyway",
    ),
    command(
        "E0592",
        "a rename that renames nothing",
        "`--restore-map NEW=OLD` applies to the variable `NEW`, or those whose names begin with \
         `NEW.`; if several fit, the longest counts.",
        "graph m\nvar w: f32[] = 0\nentry step(by: f32[]) -> (now: f32[]) {\n  w += by\n  return w\n}\n",
        "tfc run m.graph step --feed by=1 --state s.safetensors && tfc run m.graph step --feed by=1 --restore s.safetensors --restore-map u=w",
        "tfc run m.graph step --feed by=1 --state s.safetensors && tfc run m.graph step --feed by=1 --restore s.safetensors --restore-map w=w",
    ),
    command(
        "E0593",
        "only some of the variables",
        "An entry that changes nothing would compute with initial values for the rest. Training \
         may start with only some of the variables; for any other entry, confirm it with \
         `--partial`.",
        "graph m\nvar a: f32[] = 1\nvar b: f32[] = 2\nentry make() -> (a: f32[]) {\n  return f32[](7)\n}\nentry both() -> (s: f32[]) {\n  return a + b\n}\n",
        "tfc run m.graph make --out a=s.safetensors && tfc run m.graph both --restore s.safetensors",
        "tfc run m.graph make --out a=s.safetensors && tfc run m.graph both --restore s.safetensors --partial",
    ),
    command(
        "E0594",
        "more memory than is allowed",
        "`--max-memory` limits how much memory the variables of a program and the working memory \
         of a call may take together. If all sizes are known, the graph is refused at compile \
         time; otherwise, a call is refused if its sizes need more. The notes say how much it is, \
         and at which line of the graph most is in use.",
        "graph m\ndim B\nentry f(x: f32[B, 64]) -> (y: f32[B, 64]) {\n  return transpose(cumsum(transpose(cumsum(x, axis: 0)), axis: 0))\n}\n",
        "tfc bench --max-memory 1M m.graph f --dim B=8192 --calls 1",
        "tfc bench --max-memory 1M m.graph f --dim B=16 --calls 1",
    ),
    command(
        "E0601",
        "a damaged .safetensors file",
        "The file is not a .safetensors file, or ends too early. State and feeds can both be such \
         files.",
        "graph m\nvar n: i32[] = 0\nentry step(by: i32[]) -> (now: i32[]) {\n  n += by\n  return n\n}\n",
        "echo hello > s.safetensors && tfc run m.graph step --feed by=1 --state s.safetensors",
        "tfc run m.graph step --feed by=1 --state s.safetensors",
    ),
    late(
        "E0602",
        "a state file of another program",
        "The file holds the variables of another graph.",
    ),
    command(
        "E0603",
        "a variable missing from a state file",
        "The state file does not have all the variables of the program.",
        "graph m\nvar n: i32[] = 0\nvar total: i32[] = 0\nentry make() -> (k: i32[]) {\n  return i32[](7)\n}\nentry step(by: i32[]) -> (now: i32[]) {\n  n += by\n  total += n\n  return total\n}\n",
        "tfc run m.graph make --out k=s.safetensors && tfc run m.graph step --feed by=1 --state s.safetensors",
        "tfc run m.graph step --feed by=1 --state s.safetensors",
    ),
    command(
        "E0604",
        "a variable with a different type",
        "The value stored or given for the variable has another element type or shape.",
        "graph m\nvar n: i32[] = 0\nentry make() -> (n: f32[]) {\n  return f32[](7)\n}\nentry make_int() -> (n: i32[]) {\n  return i32[](7)\n}\nentry step(by: i32[]) -> (now: i32[]) {\n  n += by\n  return n\n}\n",
        "tfc run m.graph make --out n=s.safetensors && tfc run m.graph step --feed by=1 --state s.safetensors",
        "tfc run m.graph make_int --out n=s.safetensors && tfc run m.graph step --feed by=1 --state s.safetensors",
    ),
    late("E0605", "no such variable", "The program has no variable of this name."),
    late(
        "E0701",
        "a worker is gone",
        "Another process of the job has exited or cannot be reached. The message names it, what \
         was being exchanged and the line of the graph. Its own output says why it exited. \
         Nothing of the unfinished step is kept: `--resume` continues from the last checkpoint.",
    ),
    late(
        "E0702",
        "a worker is late",
        "Another process of the job did not answer in time, or was not started. `--peer-timeout` \
         is how long a step waits for it, `--join-timeout` how long the start does.",
    ),
    late(
        "E0703",
        "a worker may not join",
        "All processes of a job must run the same program, with the same number of workers and \
         the same token; any other process is refused. The message shows both sides.",
    ),
    late(
        "E0704",
        "a message that does not fit",
        "Another process sent something that does not fit the step: a message of an earlier run \
         or of another step, or not a tfc message at all. It was not used.",
    ),
    command(
        "E0705",
        "a job that makes no sense",
        "The environment says that this process is one of several (`TFC_RANK`, `RANK`, \
         `SLURM_PROCID`, `TF_CONFIG`, `mpirun`), but does not say everything needed to find the \
         others, or says something impossible. `--mode local` ignores it.",
        "graph m\nvar w: f32[] = 1\ndim B\nentry train(x: f32[B]) -> (loss: f32[]) {\n  loss = mean((x - w) * (x - w))\n  minimize loss over [w] with sgd()\n  return loss\n}\nfunc sgd(var p, grad: _[..]) {\n  p -= 0.1 * grad\n}\n",
        "tfc compile m.graph -o m && TFC_RANK=0 ./m train --feed 'x=[1, 2]' --state s.safetensors",
        "tfc compile m.graph -o m && TFC_RANK=0 ./m train --feed 'x=[1, 2]' --state s.safetensors --mode local",
    ),
    late(
        "E0706",
        "plain text to other hosts",
        "Workers talk without encryption. On one machine that is nobody else's business. On a \
         network you must ask for it with TFC_PLAINTEXT=1, or leave it to `mpirun`.",
    ),
    command(
        "E0707",
        "nothing to share",
        "Several processes can run only an entry that combines values over them: one with \
         `minimize` or `all_reduce`, on batches with at least one example for each process. For \
         parameter servers, it must also be possible to cut the entry at its gradients: it must \
         learn by `minimize` outside of branches and loops, and must not look at what it learned \
         in the same step. What it takes from queues and readers must follow from the step: the \
         same number of elements in each step, whichever thread is faster.",
        "graph m\nentry f(x: f32[2]) -> f32[2] {\n  return x + 1\n}\n",
        "tfc compile m.graph -o m && TFC_RANK=0 TFC_SIZE=2 TFC_COORDINATOR=127.0.0.1:1 ./m f --feed 'x=[1, 2]'",
        "tfc compile m.graph -o m && TFC_RANK=0 TFC_SIZE=2 TFC_COORDINATOR=127.0.0.1:1 ./m f --feed 'x=[1, 2]' --mode local",
    ),
    late(
        "E0708",
        "a process that is not trusted",
        "Messages between hosts are encrypted if `--tls-cert`, `--tls-key` and `--tls-ca` (or \
         TFC_TLS_CERT, TFC_TLS_KEY and TFC_TLS_CA) name a certificate, its key and the authority \
         that signs for the job. Both sides must show a certificate of that authority that is \
         valid now; a process that does not is told nothing. OpenSSL is loaded when it is needed, \
         so it must be installed where the program runs.",
    ),
    command(
        "E0801",
        "no linker",
        "Making an executable needs a C linker: install gcc or clang, or name one with `--linker`. `tfc run` needs none.",
        "graph m\nentry f(x: f32[2]) -> f32[2] {\n  return x + 1\n}\n",
        "tfc compile m.graph -o m --linker no-such-linker",
        "tfc compile m.graph -o m",
    ),
    command(
        "E0802",
        "the linker failed",
        "The notes show what the linker said.",
        "graph m\nentry f(x: f32[2]) -> f32[2] {\n  return x + 1\n}\n",
        "tfc compile m.graph -o m --linker false",
        "tfc compile m.graph -o m",
    ),
    command(
        "E0803",
        "a file that cannot be written",
        "Check the folder, the permissions and the space on the disk.",
        "graph m\nentry f(x: f32[2]) -> f32[2] {\n  return x + 1\n}\n",
        "tfc compile m.graph -o no-such-folder/m",
        "tfc compile m.graph -o m",
    ),
    command(
        "E0804",
        "a file that cannot be read",
        "Check the path and the permissions.",
        "graph m\nentry f(x: f32[2]) -> f32[2] {\n  return x + 1\n}\n",
        "tfc check n.graph",
        "tfc check m.graph",
    ),
    late(
        "E0805",
        "this machine cannot run the program",
        "The program was built for a processor with instructions that this one lacks. Compile it \
         for older ones (`--cpu baseline`), or on this machine (`--cpu native`).",
    ),
    late(
        "E0806",
        "a damaged program",
        "The data inside the compiled program is not what its code expects: copy or build it again.",
    ),
    late(
        "E0807",
        "a header and a library that do not belong together",
        "The C header was made for another version of the graph than the library, or by another \
         tfc. If you link the library, the linker complains about a missing symbol such as \
         `net_library_0123456789abcdef`; if you open it at run time, loading reports the error. \
         Make both at the same time: `tfc compile net.graph --emit lib,header`.",
    ),
    command(
        "E0808",
        "not a name for C functions",
        "The names of a model's C functions begin with the name of the output, or with \
         `--prefix`. This must be an identifier, and not one that C's own libraries or tfc use: \
         with the prefix `pthread`, an entry `create` would be `pthread_create`.",
        "graph m\nentry f(x: f32[2]) -> f32[2] {\n  return x + 1\n}\n",
        "tfc compile m.graph --emit header -o tfc.h",
        "tfc compile m.graph --emit header -o tfc.h --prefix net",
    ),
    command(
        "E0809",
        "a target that tfc cannot make programs for",
        "tfc can make programs for x86_64 and aarch64 Linux, with glibc or musl. For a target \
         other than its own, it compiles the runtime when first needed, which takes `rustc` and \
         Rust's library for the target (`rustup target add`). Programs for glibc also need a C \
         compiler for the target.",
        "graph m\nentry f(x: f32[2]) -> f32[2] {\n  return x + 1\n}\n",
        "tfc compile m.graph -o m --target sparc64-unknown-linux-gnu",
        "tfc compile m.graph -o m",
    ),
    command(
        "E0810",
        "a path that leads out of the sandbox",
        "With `--sandbox DIR` a graph may read and write only what lies below DIR, wherever links and `..` lead. Paths given on the command line are not confined.",
        "graph m\nvar n: f32[] = 1\nentry keep() {\n  save(n, path: \"../n.safetensors\")\n}\nentry keep_here() {\n  save(n, path: \"n.safetensors\")\n}\n",
        "tfc run m.graph keep --sandbox .",
        "tfc run m.graph keep_here --sandbox .",
    ),
    late(
        "E0820",
        "a damaged compiled module",
        "`Module::save` did not write this file, or it was cut short or changed since, or another \
         version of tfc wrote it. Compile the graph again and save it again.",
    ),
    command(
        "E0840",
        "no GPU",
        "There is no NVIDIA GPU or no driver for one, no GPU with that number, or the program was \
         compiled only for the CPU (`tfc compile --target cuda` adds code for GPUs). `tfc \
         devices` lists what there is. Every program can run on the CPU.",
        "graph m\nentry f(x: f32[2]) -> f32[2] {\n  return x + 1\n}\n",
        "tfc run m.graph f --feed 'x=[1, 2]' --device cuda:999",
        "tfc run m.graph f --feed 'x=[1, 2]' --device cpu",
    ),
    late(
        "E0841",
        "a GPU out of memory",
        "The GPU's memory cannot hold the variables, what an entry needs while it runs, and what \
         other programs use. Use smaller batches, end the other programs, or run on the CPU.",
    ),
    late(
        "E0842",
        "a GPU or a driver that is too old",
        "Programs run on Volta and newer GPUs (compute capability 7.0) with a driver for CUDA \
         11.4 or later. You can install a newer driver without touching the program.",
    ),
    late(
        "E0843",
        "a GPU that failed",
        "The driver lost the GPU, or the GPU stopped in the middle of a step: what was in its \
         memory is gone. Start again, with `--resume` from the last checkpoint. If it happens again \
         at the same step, please report it; if it happens anywhere, suspect the machine.",
    ),
    late(
        "E0899",
        "a bug in tfc",
        "This is not your fault. Please report it with the file the message names.",
    ),
    command(
        "E0901",
        "wrong usage",
        "`--help` shows how to use the command.",
        "graph m\nentry f(x: f32[2]) -> f32[2] {\n  return x + 1\n}\n",
        "tfc compile",
        "tfc compile m.graph",
    ),
    command(
        "E0902",
        "an unknown name on the command line",
        "The command line names something that does not exist; the message says what there is.",
        "graph m\nentry f(x: f32[2]) -> f32[2] {\n  return x + 1\n}\n",
        "tfc opt m.graph --passes flod",
        "tfc opt m.graph --passes fold",
    ),
    command(
        "E0903",
        "arguments that do not go together",
        "An option is missing, or excludes another.",
        "graph m\nentry f(x: f32[2]) -> f32[2] {\n  h = x + 1\n  return h * 2\n}\nentry g(x: f32[2]) -> f32[2] {\n  return x\n}\n",
        "tfc run m.graph --fetch h --feed 'x=[1, 2]'",
        "tfc run m.graph f --fetch h --feed 'x=[1, 2]'",
    ),
    command(
        "E0911",
        "no such entry",
        "Start with the name of one of the program's entries: `./program ENTRY --feed ...`.",
        "graph m\nentry f(x: f32[2]) -> f32[2] {\n  return x + 1\n}\n",
        "tfc run m.graph g --feed 'x=[1, 2]'",
        "tfc run m.graph f --feed 'x=[1, 2]'",
    ),
    command(
        "E0912",
        "no such option",
        "`--help` lists the options.",
        "graph m\nentry f(x: f32[2]) -> f32[2] {\n  return x + 1\n}\n",
        "tfc compile m.graph -o m && ./m f --feeds 'x=[1, 2]'",
        "tfc compile m.graph -o m && ./m f --feed 'x=[1, 2]'",
    ),
    command(
        "E0913",
        "an option without its value",
        "The option needs a value after it.",
        "graph m\nentry f(x: f32[2]) -> f32[2] {\n  return x + 1\n}\n",
        "tfc compile m.graph -o m && ./m f --feed",
        "tfc compile m.graph -o m && ./m f --feed 'x=[1, 2]'",
    ),
    command(
        "E0914",
        "a value that does not fit the option",
        "The message says what it must be.",
        "graph m\ndim B\nentry f(x: f32[B]) -> f32[B] {\n  return x + 1\n}\n",
        "tfc run m.graph f --feed 'x=[1, 2]' --batch none",
        "tfc run m.graph f --feed 'x=[1, 2]' --batch 1",
    ),
    late(
        "E0998",
        "a bug in tfc: an ill-typed graph",
        "A pass of the compiler built something that is not well-typed. Please report it.",
    ),
    late(
        "E0999",
        "a bug in tfc: a malformed graph",
        "The compiler found that it had broken its own rules. Please report it.",
    ),
];
