//! Checkpoints of a program, in process: saving, resuming, damage, restoring.

mod common;

use common::*;
use std::path::{Path, PathBuf};
use tfc_abi::plan::Plan;
use tfc_runtime::cli::{self, Console, Program};
use tfc_runtime::io::{self, tensor_file};
use tfc_runtime::{Model, ModelOptions, Result, TensorBuf, checkpoint};

/// A program whose graph has this hash.
struct Small(u8);

impl Program for Small {
    fn plan(&self) -> Result<Plan> {
        Ok(Plan { graph_hash: [self.0; 32], ..small_plan() })
    }

    fn load(&self, options: ModelOptions) -> Result<Model> {
        // SAFETY: the descriptor is static and right.
        unsafe { Model::load_with(describe(&self.plan()?, &KERNELS, &[]), options) }
    }

    fn jobs(&self) -> Option<&'static cli::jobs::Jobs> {
        Some(&cli::jobs::TFC_JOBS)
    }
}

struct Dir {
    _keep: tempfile::TempDir,
    path: PathBuf,
    x: String,
    y: String,
}

impl Dir {
    /// A directory with `n` examples.
    fn new(n: usize) -> Dir {
        let keep = tempfile::tempdir().unwrap();
        let path = keep.path().to_path_buf();
        let x: Vec<f32> = (0..n * 4).map(|i| i as f32).collect();
        let x = TensorBuf::from_slice(&[n, 4], &x).unwrap();
        let y = TensorBuf::from_slice(&[n], &vec![1f32; n]).unwrap();
        let file = |name: &str| path.join(name).display().to_string();
        io::write_tensors(&path.join("x.npy"), &[("x", &x)]).unwrap();
        io::write_tensors(&path.join("y.npy"), &[("y", &y)]).unwrap();
        let (x, y) = (format!("x={}", file("x.npy")), format!("y={}", file("y.npy")));
        Dir { _keep: keep, path, x, y }
    }

    fn file(&self, name: &str) -> String {
        self.path.join(name).display().to_string()
    }

    /// `train` with these options; exit code and standard error.
    fn train(&self, program: &Small, extra: &str) -> (i32, String) {
        let mut words: Vec<String> =
            ["train", "--feed", &self.x, "--feed", &self.y].map(str::to_owned).into();
        words.extend(extra.split_whitespace().map(|w| w.replace("DIR", &self.file("c"))));
        let (mut out, mut err) = (vec![], vec![]);
        let mut console = Console { out: &mut out, err: &mut err, terminal: false };
        let code = cli::main(program, "./small", &words, &mut console);
        (code, String::from_utf8(err).unwrap())
    }

    fn ok(&self, extra: &str) -> String {
        let (code, err) = self.train(&Small(1), extra);
        assert_eq!(code, 0, "{extra}: {err}");
        err
    }

    fn steps(&self) -> Vec<u64> {
        let list = checkpoint::list(&self.path.join("c")).unwrap();
        list.checkpoints.into_iter().map(|(step, _)| step).collect()
    }

    /// The variable `train` counts examples in, in a file of the checkpoints.
    fn bias(&self, file: &str) -> f64 {
        let path = self.path.join("c").join(file);
        tensor_file(&path, Some("b"), "b", None).unwrap().get_f64(0).unwrap()
    }
}

fn data(step: u64) -> String {
    format!("step-{step:012}.safetensors")
}

#[test]
fn saves_keeps_and_resumes() {
    let d = Dir::new(10);
    d.ok("--batch 2 --steps 3 --checkpoint-dir DIR --save-every 2 --shuffle 7");
    assert_eq!(d.steps(), [2, 3]);
    // Steps and epochs are those of the whole run.
    let err = d.ok("--batch 2 --epochs 3 --checkpoint-dir DIR --save-every 2steps --keep 2 --shuffle 7 --resume");
    assert!(err.contains("note: resuming from step 3"), "{err}");
    assert_eq!(d.steps(), [14, 15]);
    let whole = Dir::new(10);
    whole.ok("--batch 2 --epochs 3 --checkpoint-dir DIR --shuffle 7 --keep 9");
    assert_eq!(whole.steps(), [5, 10, 15], "without --save-every, once an epoch");
    assert_eq!(whole.bias(&data(15)), d.bias(&data(15)));
    // Nothing is left but the checkpoints.
    assert_eq!(std::fs::read_dir(d.path.join("c")).unwrap().count(), 4);
    // A run that is complete says so, and changes nothing.
    let err = d.ok("--batch 2 --epochs 3 --checkpoint-dir DIR --shuffle 7 --resume");
    assert!(err.contains("the run is complete: 15 steps are done"), "{err}");
    assert_eq!(d.steps(), [14, 15]);
    // Single calls are steps too.
    d.ok("--checkpoint-dir DIR --resume -q");
    assert_eq!(d.steps(), [14, 15, 16]);
    assert_eq!(d.bias(&data(16)), 41.0);
}

#[test]
fn damage_is_named_and_the_previous_one_used() {
    let d = Dir::new(4);
    d.ok("--batch 1 --steps 3 --checkpoint-dir DIR --save-every 1");
    let manifest = "step-000000000003.json".to_owned();
    for (file, why) in [(data(3), "safetensors"), (manifest, "json")] {
        let path = d.path.join("c").join(&file);
        let good = std::fs::read(&path).unwrap();
        let middle = good.len() / 2;
        let mut flipped = good.clone();
        flipped[middle] ^= 4;
        let mut last = good.clone();
        *last.last_mut().unwrap() ^= 1;
        let longer = [good.as_slice(), b" "].concat();
        let damaged = [good[..middle].to_vec(), vec![], flipped, last, longer];
        for bytes in &damaged {
            std::fs::write(&path, bytes).unwrap();
            let err = d.ok("--batch 1 --steps 2 --checkpoint-dir DIR --resume");
            assert!(err.starts_with("warning[E0580]: checkpoint `"), "{err}");
            assert!(err.contains("step-000000000003` is torn"), "{err}");
            assert!(err.contains(&format!("{why}`: it ")), "{err}");
            assert!(err.contains("resuming from step 2"), "{err}");
        }
        std::fs::write(&path, &good).unwrap();
    }
    let err = d.ok("--batch 1 --steps 3 --checkpoint-dir DIR --resume");
    assert!(err.contains("resuming from step 3"), "{err}");
    // Data without a manifest is a save that never ended.
    std::fs::remove_file(d.path.join("c/step-000000000003.json")).unwrap();
    let err = d.ok("--batch 1 --steps 2 --checkpoint-dir DIR --resume");
    assert!(err.contains("was not saved completely"), "{err}");
    assert!(err.contains("resuming from step 2"), "{err}");
    // A manifest without data is torn.
    std::fs::remove_file(d.path.join("c").join(data(2))).unwrap();
    let err = d.ok("--batch 1 --steps 1 --checkpoint-dir DIR --resume");
    assert!(err.contains("cannot be read: No such file"), "{err}");
    // None that is good is an error, not a new start.
    std::fs::write(d.path.join("c").join(data(1)), b"").unwrap();
    let (code, err) = d.train(&Small(1), "--batch 1 --steps 1 --checkpoint-dir DIR --resume");
    assert_eq!(code, 1);
    assert!(err.starts_with("error[E0582]: none of the 2 checkpoints"), "{err}");
    assert!(err.contains("cut short: 0 of"), "{err}");
}

#[test]
fn torn_ones_do_not_push_out_good_ones() {
    let d = Dir::new(4);
    d.ok("--batch 1 --steps 4 --checkpoint-dir DIR --save-every 1");
    for step in [3, 4] {
        std::fs::write(d.path.join("c").join(data(step)), b"x").unwrap();
    }
    // Resumes from step 2; one save at step 3 must leave something to go on from.
    d.ok("--batch 1 --steps 3 --checkpoint-dir DIR --save-every 1 --keep 1 --resume");
    assert_eq!(d.steps(), [3, 4]);
    let err = d.ok("--batch 1 --steps 3 --checkpoint-dir DIR --resume");
    assert!(err.contains("resuming from step 3"), "{err}");
}

#[test]
fn other_graphs_and_other_data_are_refused() {
    let d = Dir::new(4);
    d.ok("--batch 1 --steps 2 --checkpoint-dir DIR --save-every 1 --shuffle 1");
    let (code, err) = d.train(&Small(2), "--batch 1 --steps 3 --checkpoint-dir DIR --resume");
    assert_eq!(code, 1);
    assert!(err.starts_with("error[E0582]"), "{err}");
    assert!(err.contains("is of another graph"), "{err}");
    assert!(err.contains("help: `--restore "), "{err}");
    assert!(err.contains("saved by graph `small` (010101010101), this is `small` (0202"), "{err}");
    let cases = [
        ("--checkpoint-dir DIR --batch 1", 1, "error[E0583]"),
        ("--checkpoint-dir DIR --batch 1 --resume", 1, "error[E0586]"),
        ("--checkpoint-dir DIR --batch 1 --resume --shuffle 2", 1, "error[E0586]"),
        ("--save-every 3", 2, "error[E0585]: `--save-every` needs `--checkpoint-dir`"),
        ("--resume", 2, "error[E0585]"),
        ("--save-every 0", 2, "error[E0914]"),
        ("--restore-map x --restore y", 2, "error[E0914]"),
    ];
    for (line, want, start) in cases {
        let (code, err) = d.train(&Small(1), line);
        assert_eq!(code, want, "{line}: {err}");
        assert!(err.contains(start), "{line}: {err}");
    }
    // A state file is written, a checkpoint is not.
    let line = format!("--state {}", d.path.join("c").join(data(2)).display());
    let (code, err) = d.train(&Small(1), &line);
    assert!(code == 2 && err.starts_with("error[E0587]"), "{err}");
    let more = Dir::new(5);
    std::fs::rename(d.path.join("c"), more.path.join("c")).unwrap();
    let (_, err) = more.train(&Small(1), "--checkpoint-dir DIR --batch 1 --resume --shuffle 1");
    assert!(err.contains("it had 4 examples, now there are 5"), "{err}");
}

#[test]
fn an_empty_directory_starts_a_run() {
    let d = Dir::new(4);
    let err = d.ok("--batch 2 --checkpoint-dir DIR --resume");
    assert!(err.contains("starting at step 0"), "{err}");
    assert_eq!(d.steps(), [2]);
}

#[test]
fn variables_of_another_model() {
    let d = Dir::new(4);
    let t = |n: usize, v: f32| TensorBuf::from_slice(&[n], &vec![v; n]).unwrap();
    let file = Path::new(&d.file("other.safetensors")).to_path_buf();
    io::write_tensors(&file, &[("old.b", &t(3, 40.0)), ("w", &t(2, 0.0)), ("z", &t(1, 0.0))])
        .unwrap();
    let line = format!("--batch 1 --checkpoint-dir DIR --restore {}", file.display());
    let (code, err) = d.train(&Small(1), &line);
    assert_eq!(code, 1);
    assert!(err.starts_with("error[E0584]"), "{err}");
    let err = d.ok(&format!("{line} --restore-map b=old.b"));
    assert!(err.contains("note: restored 1 of 2 variables from"), "{err}");
    assert!(err.contains("`w` is f32[4, 3], but f32[2] in the file: as initialised"), "{err}");
    assert!(err.contains("in the file but not in the graph: `z`"), "{err}");
    assert_eq!(d.bias(&data(4)), 44.0);
    // What is resumed is not restored again.
    d.ok(&format!("{line} --epochs 2 --resume"));
    assert_eq!(d.bias(&data(8)), 48.0);
    // A checkpoint's directory will do, and its data is a state file.
    let from = Dir::new(4);
    let err = from.ok(&format!("--batch 4 --checkpoint-dir DIR --restore {}", d.file("c")));
    assert!(err.contains("restored 2 of 2"), "{err}");
    assert_eq!(from.bias(&data(1)), 52.0);
}

/// faults 14: resuming with another batch, other contents or another entry went on
/// without a word.
#[test]
fn another_run_is_not_resumed() {
    let d = Dir::new(4);
    d.ok("--batch 2 --steps 1 --checkpoint-dir DIR");
    let (code, err) = d.train(&Small(1), "--batch 1 --steps 3 --checkpoint-dir DIR --resume");
    assert_eq!(code, 1, "{err}");
    assert!(err.contains("error[E0586]") && err.contains("`--batch` was 2, now it is 1"), "{err}");
    // As many numbers, but others.
    let x = TensorBuf::from_slice(&[4, 4], &[0.5f32; 16]).unwrap();
    io::write_tensors(&d.path.join("x.npy"), &[("x", &x)]).unwrap();
    let (code, err) = d.train(&Small(1), "--batch 2 --steps 3 --checkpoint-dir DIR --resume");
    assert_eq!(code, 1, "{err}");
    assert!(err.contains("feed `x` differ: f32[4, 4], but not the same bytes"), "{err}");
    // If that is what is wanted.
    let err = d.ok("--batch 2 --steps 3 --checkpoint-dir DIR --resume-anyway");
    assert!(err.contains("warning[E0586]") && err.contains("resuming from step 1"), "{err}");
    assert_eq!(d.steps(), [1, 2, 3]);
}

/// faults 14: runs that shared a directory removed each other's files.
#[test]
fn a_directory_is_one_run_s_at_a_time() {
    let d = Dir::new(4);
    let held = checkpoint::lock(&d.path.join("c")).unwrap();
    assert!(held.is_some());
    let (code, err) = d.train(&Small(1), "--batch 2 --checkpoint-dir DIR");
    assert_eq!(code, 3, "{err}");
    assert!(err.starts_with("error[E0590]: another run saves its checkpoints in"), "{err}");
    drop(held);
    d.ok("--batch 2 --checkpoint-dir DIR");
    // A save under way elsewhere keeps its file, one of a dead process does not.
    let name = |pid: u32| d.path.join(format!("c/step-000000000001.json.{pid}-0-00ff.tmp"));
    let (ours, dead) = (name(std::process::id()), name(u32::MAX - 1));
    std::fs::write(&ours, "").unwrap();
    std::fs::write(&dead, "").unwrap();
    d.ok("--batch 2 --epochs 2 --checkpoint-dir DIR --resume");
    assert!(ours.exists());
    assert!(!dead.exists() || !Path::new("/proc").exists());
}

/// faults 13: a flipped bit was accepted by `--restore` and `--state`.
#[test]
fn restoring_holds_the_data_against_its_manifest() {
    let d = Dir::new(4);
    d.ok("--batch 4 --checkpoint-dir DIR");
    let path = d.path.join("c").join(data(1));
    let mut bytes = std::fs::read(&path).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let file = path.display();
    let line = format!("--batch 4 --restore {file}");
    let (code, err) = d.train(&Small(1), &line);
    assert_eq!(code, 1);
    assert!(err.contains("error[E0580]"), "{err}");
    let (mut out, mut err) = (vec![], vec![]);
    let words = ["predict", "--feed", &d.x, "--state", &file.to_string()].map(str::to_owned);
    let mut console = Console { out: &mut out, err: &mut err, terminal: false };
    assert_eq!(cli::main(&Small(1), "./small", &words, &mut console), 1);
    assert!(String::from_utf8_lossy(&err).contains("E0580"));
}

/// faults 16: a position that cannot be was exit code 101.
#[test]
fn forged_positions_are_refused() {
    let d = Dir::new(4);
    d.ok("--batch 1 --steps 2 --checkpoint-dir DIR");
    let path = d.path.join("c/step-000000000002.json");
    let manifest = checkpoint::Manifest::read(&path).unwrap();
    for (example, epoch) in [(4, 0), (i64::MAX, 0), (-1, 0), (1, -7)] {
        let mut forged = manifest.clone();
        forged.positions.insert("example".into(), example);
        forged.positions.insert("epoch".into(), epoch);
        std::fs::write(&path, forged.text()).unwrap();
        let (code, err) = d.train(&Small(1), "--batch 1 --steps 3 --checkpoint-dir DIR --resume");
        assert_eq!(code, 1, "{example} {epoch}: {err}");
        assert!(err.contains("error[E0580]"), "{err}");
    }
    // Its file is one beside it, and no longer than it says.
    let mut forged = manifest.clone();
    forged.files[0].file = "../x".into();
    std::fs::write(&path, forged.text()).unwrap();
    assert_eq!(checkpoint::verify(&path).unwrap_err().code(), "E0580");
    std::fs::write(&path, manifest.text()).unwrap();
    let at = d.path.join("c").join(data(2));
    std::fs::remove_file(&at).unwrap();
    #[cfg(unix)]
    std::os::unix::fs::symlink("/dev/zero", &at).unwrap();
    assert_eq!(checkpoint::verify(&path).unwrap_err().code(), "E0580");
}

/// faults 12: one save that failed ended the run.
#[test]
#[cfg(unix)]
fn a_failed_save_is_tried_again() {
    let d = Dir::new(6);
    // What is in the way of the checkpoint of step 2 cannot be replaced by a file.
    std::fs::create_dir_all(d.path.join("c").join(data(2)).join("x")).unwrap();
    let err = d.ok("--batch 1 --checkpoint-dir DIR --save-every 1 --keep 9");
    assert!(err.contains("warning[E0803]"), "{err}");
    assert!(err.contains("step 2 is not saved; the last good checkpoint is of step 1"), "{err}");
    assert_eq!(d.steps(), [1, 3, 4, 5, 6]);
    // The last one must not fail.
    std::fs::create_dir_all(d.path.join("c").join(data(12)).join("x")).unwrap();
    let line = "--batch 1 --epochs 2 --checkpoint-dir DIR --save-every 9 --keep 9 --resume";
    let (code, err) = d.train(&Small(1), line);
    assert_eq!(code, 3, "{err}");
    assert!(err.contains("error[E0803]"), "{err}");
}

/// user 8: renames went by any beginning of a name, the first one won, and a part
/// was as good as the whole.
#[test]
fn renames_end_where_names_do() {
    struct Named;
    impl Program for Named {
        fn plan(&self) -> Result<Plan> {
            let mut plan = small_plan();
            plan.vars[0].name = "net.a".into();
            plan.vars[1].name = "net.ab".into();
            Ok(plan)
        }
        fn load(&self, options: ModelOptions) -> Result<Model> {
            // SAFETY: the descriptor is static and right.
            unsafe { Model::load_with(describe(&self.plan()?, &KERNELS, &[]), options) }
        }

        fn jobs(&self) -> Option<&'static cli::jobs::Jobs> {
            Some(&cli::jobs::TFC_JOBS)
        }
    }
    let d = Dir::new(2);
    let file = d.path.join("other.safetensors");
    let w = TensorBuf::from_slice(&[4, 3], &[2f32; 12]).unwrap();
    let b = TensorBuf::from_slice(&[3, 1], &[5f32; 3]).unwrap();
    io::write_tensors(&file, &[("o", &w), ("p", &b)]).unwrap();
    let predict = |more: &str| {
        let mut words: Vec<String> =
            ["predict", "--feed", &d.x, "--restore"].map(str::to_owned).into();
        words.push(file.display().to_string());
        words.extend(more.split_whitespace().map(str::to_owned));
        let (mut out, mut err) = (vec![], vec![]);
        let mut console = Console { out: &mut out, err: &mut err, terminal: false };
        let code = cli::main(&Named, "./small", &words, &mut console);
        (code, String::from_utf8(err).unwrap())
    };
    // In either order; an axis of size one does not matter.
    for order in ["net.a=o --restore-map net.ab=p", "net.ab=p --restore-map net.a=o"] {
        let (code, err) = predict(&format!("--restore-map {order}"));
        assert_eq!(code, 0, "{err}");
        assert!(err.contains("restored 2 of 2 variables"), "{err}");
    }
    // A part is an error, unless it is asked for.
    let (code, err) = predict("--restore-map net.a=o");
    assert_eq!(code, 1, "{err}");
    assert!(err.contains("error[E0593]") && err.contains("it lacks `net.ab`"), "{err}");
    let (code, err) = predict("--restore-map net.a=o --partial");
    assert_eq!(code, 0, "{err}");
    assert!(err.contains("restored 1 of 2 variables"), "{err}");
    let (code, err) = predict("--restore-map net.a=o --restore-map ne=p");
    assert!(code == 2 && err.contains("error[E0592]"), "{err}");
    assert!(err.contains("did you mean `net`?"), "{err}");
}

/// faults 7: results of a resumed run held what came after the resume.
#[test]
fn results_of_a_resumed_run_are_whole() {
    let d = Dir::new(10);
    let line = |extra: &str, out: &str| {
        format!("--batch 3 --checkpoint-dir DIR --save-every 1 {extra} --out loss={}", d.file(out))
    };
    let loss = |name: &str| {
        tensor_file(Path::new(&d.file(name)), None, "", None).unwrap().get_f64(0).unwrap()
    };
    d.ok(&line("--steps 2", "half.npy"));
    d.ok(&line("--epochs 1 --resume", "whole.npy"));
    assert_eq!(loss("whole.npy"), f64::from(2.8f32));
    // A run that was killed before it wrote them has them still.
    let (code, err) = d.train(&Small(1), &line("--epochs 1 --resume", "again.npy"));
    assert_eq!(code, 0, "{err}");
    assert_eq!(loss("again.npy"), loss("whole.npy"));
}

/// faults 3: saves to one place at the same time failed, or mixed their files.
#[test]
fn threads_that_save_at_once_do_not_meet() {
    let d = Dir::new(2);
    let model = Small(1).load(ModelOptions::default()).unwrap();
    let dir = d.path.join("c");
    std::thread::scope(|s| {
        for t in 0..4u64 {
            let (model, dir) = (&model, &dir);
            s.spawn(move || {
                for i in 0..10 {
                    let bias = TensorBuf::from_slice(&[3], &[(t * 100 + i) as f32; 3]).unwrap();
                    model.write_var(1, bias.view()).unwrap();
                    let what = checkpoint::Save { step: 7, keep: 5, ..Default::default() };
                    let path = checkpoint::save(model, dir, &what).unwrap();
                    assert!(path.exists());
                }
            });
        }
    });
    checkpoint::verify(&dir.join("step-000000000007.json")).unwrap();
    assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 2, "temporary files are left");
}
