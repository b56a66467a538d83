//! What a job shows on a terminal.

use super::{TRAIN, command, ok, project, run};
use std::ffi::{c_int, c_ulong};
use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::fd::AsRawFd;

/// A terminal: the end where one sees it, and the one that programs write to.
fn terminal() -> std::io::Result<(File, File)> {
    const TIOCSPTLCK: c_ulong = 0x4004_5431;
    const TIOCGPTN: c_ulong = 0x8004_5430;
    unsafe extern "C" {
        fn ioctl(file: c_int, request: c_ulong, ...) -> c_int;
    }
    let open = |name: &str| OpenOptions::new().read(true).write(true).open(name);
    let seen = open("/dev/ptmx")?;
    let (mut number, mut locked) = (0 as c_int, 0 as c_int);
    for (request, value) in [(TIOCSPTLCK, &mut locked), (TIOCGPTN, &mut number)] {
        // SAFETY: each of the two requests takes the address of a number.
        if unsafe { ioctl(seen.as_raw_fd(), request, &raw mut *value) } != 0 {
            return Err(std::io::Error::last_os_error());
        }
    }
    Ok((seen, open(&format!("/dev/pts/{number}"))?))
}

/// The lines of a screen that is wide enough, and how often one of them was cleared.
fn screen(bytes: &[u8]) -> (Vec<String>, usize) {
    let (mut lines, mut at, mut cleared) = (vec![vec![]], 0, 0);
    let mut rest = bytes;
    while let [first, behind @ ..] = rest {
        let line = lines.last_mut().unwrap();
        rest = behind;
        match first {
            b'\r' => at = 0,
            b'\n' => {
                lines.push(vec![]);
                at = 0;
            }
            b'\x1b' => {
                assert!(rest.starts_with(b"[K"), "{:?}", String::from_utf8_lossy(bytes));
                rest = &rest[2..];
                line.truncate(at);
                cleared += 1;
            }
            letter => {
                match line.get_mut(at) {
                    Some(place) => *place = *letter,
                    None => line.push(*letter),
                }
                at += 1;
            }
        }
    }
    let text = |line: Vec<u8>| String::from_utf8(line).unwrap();
    (lines.into_iter().map(text).collect(), cleared)
}

#[test]
fn one_line_says_how_far_a_job_is_and_tears_no_other() {
    let Ok((mut seen, given)) = terminal() else {
        eprintln!("skipped: there are no terminals here");
        return;
    };
    let dir = project();
    let dir = dir.path();
    // The other worker has something to say all the time.
    let script = "if [ $TFC_RANK = 1 ]; then\n\
                  for i in $(seq 300); do echo this is line $i >&2; sleep 0.003; done &\nfi\n\
                  \"$@\" && wait\n";
    std::fs::write(dir.join("talk.sh"), script).unwrap();
    let train = format!("{TRAIN} --steps 4000 --epochs 1000");
    let mut job =
        command(dir, env!("CARGO_BIN_EXE_tfc"), &format!("launch -n 2 bash talk.sh {train}"));
    job.stdout(given.try_clone().unwrap()).stderr(given);
    let mut child = job.spawn().unwrap();
    // With it go the ends of the terminal that are open here.
    drop(job);
    let mut bytes = vec![];
    let mut some = [0; 4096];
    // At its end a terminal gives an error.
    while let Ok(n @ 1..) = seen.read(&mut some) {
        bytes.extend_from_slice(&some[..n]);
    }
    assert!(child.wait().unwrap().success());
    let text = String::from_utf8_lossy(&bytes).into_owned();
    assert!(text.contains("\repoch 1/1000 [======") && text.contains("examples/s\x1b[K"), "{text}");
    let (lines, cleared) = screen(&bytes);
    assert!(cleared > 500, "{cleared}");
    let whole = |i: &usize| lines.contains(&format!("[1] this is line {i}"));
    assert!((1..=300).all(|i| whole(&i)), "{lines:#?}");
    let known = |line: &&String| {
        let starts = ["note: ", "epoch ", "[1] this is line "];
        line.is_empty() || starts.iter().any(|s| line.starts_with(s)) && !line.contains("[==")
    };
    let strange: Vec<&String> = lines.iter().filter(|l| !known(l)).collect();
    assert!(strange.is_empty(), "{strange:#?}");
    // And where nobody looks there is no such line.
    let out = ok(run(dir, &format!("{} launch -n 2 {TRAIN}", env!("CARGO_BIN_EXE_tfc"))));
    assert!(out.contains("epoch 13/13") && !out.contains('\r'), "{out}");
}
