//! E05xx to E09xx: feeds and run-time checks, state files, peers, toolchain and
//! files, command line, bugs.

use super::{Code, graph, late};

pub const CODES: &[Code] = &[
    late(
        "E0501",
        "a feed is missing",
        "Every parameter of the entry is fed: `--feed x=x.npy`. `--signature` prints a line ready to paste.",
    ),
    late(
        "E0502",
        "a feed or value the entry does not take",
        "The entry has no parameter of this name, or more is given than it takes. `--signature` lists them.",
    ),
    late(
        "E0503",
        "a feed of another element type",
        "Nothing is converted silently: store the array in the type the entry asks for.",
    ),
    late("E0504", "a feed of another rank", "The array has more or fewer axes than the parameter."),
    late(
        "E0505",
        "a feed of another size",
        "An axis of the array has a size the parameter does not allow.",
    ),
    late(
        "E0506",
        "feeds that disagree",
        "A named dim has one value in a call: `x: f32[B, 3]` and `y: i32[B]` are fed with equal numbers of rows.",
    ),
    late(
        "E0507",
        "a size out of its range",
        "The dim was declared with a range, `dim B: 1..256`, and the feed is outside it.",
    ),
    late(
        "E0508",
        "a size that cannot be",
        "A size computed from the dims of this call is negative.",
    ),
    late(
        "E0509",
        "an assertion failed",
        "An `assert` in the graph found its condition false; the message is the graph's.",
    ),
    late(
        "E0510",
        "an index out of range",
        "`scatter_add` and the other scatter updates do not ignore indices outside the tensor. (`gather` and the dynamic slices clamp theirs.)",
    ),
    late(
        "E0511",
        "a run-time check failed",
        "The message says what was checked and what was found.",
    ),
    late(
        "E0512",
        "a data file that cannot be read",
        "The file is damaged, or not of the kind its ending says.",
    ),
    late(
        "E0513",
        "a malformed value",
        "A value on the command line is a number, a list such as `[[1, 2], [3, 4]]`, or a file.",
    ),
    late("E0514", "an unknown kind of data file", "Data files are .npy, .npz and .safetensors."),
    late(
        "E0515",
        "no such array in the file",
        "Name the array after the file: `--feed x=data.npz:x`.",
    ),
    late(
        "E0516",
        "sizes too large",
        "The sizes of this call need more memory than there is, or than can be counted.",
    ),
    late("E0517", "a dim nothing tells", "No feed has an axis of this dim."),
    late("E0518", "no examples", "The feeds have no rows to train on, or a size came out wrong."),
    late("E0519", "data that cannot be used", "The file was read, but what it holds does not fit."),
    late("E0520", "something given twice", "A feed or result is named once."),
    late("E0521", "no such result", "The entry has no result of this name or number."),
    late("E0522", "a batch that does not fit", "`--batch` slices feeds along the dim they share."),
    late(
        "E0523",
        "an entry that cannot be run in batches",
        "`--batch`, `--epochs`, `--steps` and `--shuffle` cut the feeds along the run-time dim that is their first size. The entry has no such dim or two different ones, or the feeds hold no examples.",
    ),
    graph(
        "E0530",
        "a data file of another element type",
        "`file(..)` takes the array as it is; `cast` converts it.",
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
    late(
        "E0580",
        "a torn checkpoint",
        "A file of the checkpoint is missing, cut short, or does not match the hash in its manifest. \
         A run with `--resume` uses the newest one that is whole; `tfc ckpt verify DIR` checks all of them.",
    ),
    late(
        "E0581",
        "a checkpoint of another graph",
        "A run is resumed by the graph that saved it. `--restore FILE` takes the variables that fit \
         from any graph's checkpoint, and starts a new run.",
    ),
    late(
        "E0582",
        "no checkpoint that can be used",
        "There are checkpoints, but each is torn or of another graph; the notes say which is what.",
    ),
    late(
        "E0583",
        "a directory with checkpoints of another run",
        "A new run does not mix its checkpoints with those of an older one: `--resume` goes on with \
         that one, another directory keeps both.",
    ),
    late(
        "E0584",
        "nothing to restore",
        "No tensor of the file has the name and the type of a variable. `--restore-map NEW=OLD` says \
         how names begin in the file: with `--restore-map encoder.=bert.` the variable `encoder.w` is \
         taken from `bert.w`.",
    ),
    late(
        "E0585",
        "checkpoint options that do not fit",
        "`--save-every`, `--keep` and `--resume` are about the checkpoints of `--checkpoint-dir`, and \
         only an entry that changes variables has something to save.",
    ),
    late(
        "E0586",
        "other data than that of the run to resume",
        "A resumed run goes on in the middle of its data, so the number of examples and their order \
         are those of the run that was saved.",
    ),
    late(
        "E0601",
        "a state file that cannot be used",
        "The file given with `--state` is damaged or not a state file.",
    ),
    late(
        "E0602",
        "a state file of another program",
        "The file holds the variables of another graph.",
    ),
    late(
        "E0603",
        "a variable missing in a state file",
        "The state file does not have all variables of the program.",
    ),
    late(
        "E0604",
        "a variable of another type",
        "What is stored or given for the variable has another element type or shape.",
    ),
    late("E0605", "no such variable", "The program has no variable of this name."),
    late(
        "E0701",
        "a peer was lost",
        "Another process of the job did not answer in time. The message names it and what was waited for.",
    ),
    late(
        "E0801",
        "no linker",
        "Making an executable needs a C linker: install gcc or clang, or name one with `--linker`. `tfc run` needs none.",
    ),
    late("E0802", "the linker failed", "What the linker said is in the notes."),
    late(
        "E0803",
        "a file that cannot be written",
        "Check the folder, the permissions and the space on the disk.",
    ),
    late("E0804", "a file that cannot be read", "Check the path and the permissions."),
    late(
        "E0805",
        "this machine cannot run the program",
        "The program was built for a processor with instructions this one lacks. Compile it for this machine.",
    ),
    late(
        "E0806",
        "a damaged program",
        "The data inside the compiled program is not what its code expects: copy or build it again.",
    ),
    late(
        "E0899",
        "a bug in tfc",
        "This is not your fault. Please report it with the file the message names.",
    ),
    late("E0901", "wrong usage", "`--help` shows how the command is used."),
    late(
        "E0902",
        "no such thing",
        "The command line names something that does not exist; the message says what there is.",
    ),
    late(
        "E0903",
        "arguments that do not go together",
        "An option is missing, or excludes another.",
    ),
    late(
        "E0911",
        "no such entry",
        "Name one of the program's entries first: `./program ENTRY --feed ...`.",
    ),
    late("E0912", "no such option", "`--help` lists the options."),
    late("E0913", "an option without its value", "The option needs a value after it."),
    late("E0914", "a value that does not fit the option", "The message says what it must be."),
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
