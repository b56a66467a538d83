//! Readers: every format, its mistakes, and going on from a position.

use std::path::Path;
use tfc_abi::DType;
use tfc_abi::plan::{Format, Part, Plan, QueueInfo, QueueKind, ReaderInfo};
use tfc_runtime::io::crc::masked_crc32c;
use tfc_runtime::queue::Queues;
use tfc_runtime::{CallOptions, Error, ErrorCode, Sandbox, TensorBuf};

fn part(dtype: DType, shape: &[i64]) -> Part {
    Part { dtype, shape: shape.to_vec() }
}

struct Make {
    info: ReaderInfo,
    parts: Vec<Part>,
}

fn reader(format: Format, paths: &[&Path], parts: &[Part]) -> Make {
    let paths = paths.iter().map(|p| p.display().to_string()).collect();
    let info = ReaderInfo { format, paths, keys: vec![], epochs: 1, skip: 0 };
    Make { info, parts: parts.to_vec() }
}

impl Make {
    fn queues(&self) -> Queues {
        let kind = QueueKind::Reader(self.info.clone());
        let info = QueueInfo { name: "r".into(), kind, parts: self.parts.clone() };
        Queues::new(&Plan { queues: vec![info], ..Plan::default() }, &Sandbox::default()).unwrap()
    }

    /// All records, each as the bytes of its parts.
    fn all(&self) -> Result<Vec<Vec<Vec<u8>>>, Error> {
        let queues = self.queues();
        let mut out = vec![];
        while let Some(record) = next(&queues, &self.parts)? {
            out.push(record);
        }
        Ok(out)
    }

    fn code(&self) -> ErrorCode {
        self.all().unwrap_err().code()
    }
}

fn next(queues: &Queues, parts: &[Part]) -> Result<Option<Vec<Vec<u8>>>, Error> {
    let mut record: Vec<Vec<u8>> = parts.iter().map(|p| vec![0; p.bytes().unwrap()]).collect();
    let places: Vec<(*mut u8, usize)> =
        record.iter_mut().map(|v| (v.as_mut_ptr(), v.len())).collect();
    // SAFETY: each place has the bytes of one part.
    match unsafe { queues.list()[0].take(1, &places, &CallOptions::new()) } {
        Ok(()) => Ok(Some(record)),
        Err(e) if e.is_end_of_input() => Ok(None),
        Err(e) => Err(e),
    }
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|c| f32::from_ne_bytes(c.try_into().unwrap())).collect()
}

fn int(bytes: &[u8]) -> i32 {
    i32::from_ne_bytes(bytes.try_into().unwrap())
}

#[test]
fn csv_with_two_parts_and_its_mistakes() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.csv");
    std::fs::write(&path, "x,y,label\n1, 2.5 ,3\n\n\"4\",5e-1,-6\r\n").unwrap();
    let parts = [part(DType::F32, &[2]), part(DType::I32, &[])];
    let mut r = reader(Format::Csv, &[&path], &parts);
    let e = r.all().unwrap_err();
    assert_eq!(e.code(), "E0564");
    assert!(e.message().ends_with("a.csv:1: `x` is not f32"), "{}", e.message());
    assert!(e.help_text().unwrap().contains("skip: 1"));
    r.info.skip = 1;
    let all = r.all().unwrap();
    assert_eq!(all.len(), 2);
    assert_eq!((floats(&all[0][0]), int(&all[0][1])), (vec![1.0, 2.5], 3));
    assert_eq!((floats(&all[1][0]), int(&all[1][1])), (vec![4.0, 0.5], -6));
    r.info.epochs = 3;
    assert_eq!(r.all().unwrap().len(), 6);
    for (text, what) in [
        ("1,2\n", "2 columns"),
        ("1,2,3,4\n", "4 columns"),
        ("1,2,3.5\n", "`3.5` is not i32"),
        ("1,2,99999999999\n", "is not i32"),
        ("1,,3\n", "`` is not f32"),
    ] {
        std::fs::write(&path, format!("x,y,z\n{text}")).unwrap();
        let e = r.all().unwrap_err();
        assert!(e.code() == "E0564" && e.message().contains(what), "{text}: {e}");
        assert!(e.message().contains("a.csv:2:"), "{e}");
    }
    std::fs::write(&path, b"x\n\xff\xfe\n").unwrap();
    assert_eq!(r.code(), "E0564");
    std::fs::write(&path, "").unwrap();
    r.info.epochs = 0;
    assert_eq!(r.all().unwrap().len(), 0, "an empty file without end must end");
    std::fs::remove_file(&path).unwrap();
    assert_eq!(r.code(), "E0804");
}

#[test]
fn arrays_side_by_side() {
    let dir = tempfile::tempdir().unwrap();
    let (x, y) = (dir.path().join("x.npy"), dir.path().join("y.npy"));
    let write = |path: &Path, t: &TensorBuf| {
        tfc_runtime::io::write_tensors(path, &[("a", t)]).unwrap();
    };
    let xs: Vec<f32> = (0..12).map(|i| i as f32).collect();
    write(&x, &TensorBuf::from_slice(&[3, 2, 2], &xs).unwrap());
    write(&y, &TensorBuf::from_slice(&[3], &[7i32, 8, 9]).unwrap());
    // A row may be read flat.
    let parts = [part(DType::F32, &[4]), part(DType::I32, &[])];
    let r = reader(Format::Npy, &[&x, &y], &parts);
    let all = r.all().unwrap();
    assert_eq!(all.len(), 3);
    assert_eq!((floats(&all[2][0]), int(&all[2][1])), (vec![8.0, 9.0, 10.0, 11.0], 9));
    write(&y, &TensorBuf::from_slice(&[2], &[7i32, 8]).unwrap());
    let e = r.all().unwrap_err();
    assert_eq!(e.code(), "E0567");
    assert!(e.notes()[0].contains("y.npy` ends before"), "{e}");
    assert_eq!(reader(Format::Npy, &[&y], &[part(DType::F32, &[])]).code(), "E0567");
    let archive = dir.path().join("both.npz");
    let images = TensorBuf::from_slice(&[3, 2, 2], &xs).unwrap();
    let labels = TensorBuf::from_slice(&[3], &[1i32, 2, 3]).unwrap();
    let both = [("images", &images), ("labels", &labels)];
    tfc_runtime::io::write_tensors(&archive, &both).unwrap();
    let mut r = reader(Format::Npz, &[&archive], &[part(DType::I32, &[]), part(DType::F32, &[4])]);
    r.info.keys = vec!["labels".into(), "images".into()];
    let all = r.all().unwrap();
    assert_eq!((int(&all[1][0]), floats(&all[1][1])), (2, vec![4.0, 5.0, 6.0, 7.0]));
    r.info.keys[1] = "image".into();
    assert_eq!(r.code(), "E0515");
}

#[test]
fn idx_plain_and_compressed() {
    let dir = tempfile::tempdir().unwrap();
    let plain = dir.path().join("images");
    let mut bytes = vec![0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0, 3];
    bytes.extend(0..12u8);
    std::fs::write(&plain, &bytes).unwrap();
    let parts = [part(DType::U8, &[2, 3])];
    let all = reader(Format::Idx, &[&plain], &parts).all().unwrap();
    assert_eq!(all, [[vec![0, 1, 2, 3, 4, 5]], [vec![6, 7, 8, 9, 10, 11]]]);
    let packed = dir.path().join("images.gz");
    let mut gz = vec![0x1f, 0x8b, 8, 8, 0, 0, 0, 0, 0, 3];
    gz.extend(b"images\0");
    gz.extend(miniz_oxide::deflate::compress_to_vec(&bytes, 6));
    gz.extend(tfc_runtime::io::crc::crc32(&bytes).to_le_bytes());
    gz.extend((bytes.len() as u32).to_le_bytes());
    std::fs::write(&packed, &gz).unwrap();
    assert_eq!(reader(Format::Idx, &[&packed], &parts).all().unwrap(), all);
    // Damage anywhere is an error, never a panic and never other data.
    for i in 0..gz.len() {
        let mut bad = gz.clone();
        bad[i] ^= 0x10;
        std::fs::write(&packed, &bad).unwrap();
        if let Ok(read) = reader(Format::Idx, &[&packed], &parts).all() {
            assert_eq!(read, all, "byte {i}");
        }
    }
    for cut in 0..bytes.len() {
        std::fs::write(&plain, &bytes[..cut]).unwrap();
        assert_eq!(reader(Format::Idx, &[&plain], &parts).code(), "E0565", "{cut}");
    }
}

fn record(data: &[u8]) -> Vec<u8> {
    let len = (data.len() as u64).to_le_bytes();
    let sums = [masked_crc32c(&len).to_le_bytes(), masked_crc32c(data).to_le_bytes()];
    [&len[..], &sums[0], data, &sums[1]].concat()
}

/// A field of a message, with a length.
fn field(number: u8, content: &[u8]) -> Vec<u8> {
    assert!(content.len() < 128);
    [&[number << 3 | 2, content.len() as u8][..], content].concat()
}

fn example(features: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let entries: Vec<u8> = features
        .iter()
        .flat_map(|(name, f)| field(1, &[field(1, name.as_bytes()), field(2, f)].concat()))
        .collect();
    field(1, &entries)
}

#[test]
fn tfrecords_and_examples() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.tfrecord");
    let packed: Vec<u8> = [1.5f32, -2.0].iter().flat_map(|v| v.to_le_bytes()).collect();
    let unpacked: Vec<u8> =
        [3.0f32, 4.0].iter().flat_map(|v| [&[0x0d][..], &v.to_le_bytes()].concat()).collect();
    let minus_one = [&[0xff; 9][..], &[1]].concat();
    let make = |floats: Vec<u8>, label: &[u8]| {
        example(&[
            ("x", field(2, &floats)),
            ("label", field(3, &field(1, label))),
            ("raw", field(1, &field(1, &[9, 8, 7]))),
        ])
    };
    let first = record(&make(field(1, &packed), &[5]));
    let second = record(&make(unpacked, &minus_one));
    std::fs::write(&path, [&first[..], &second].concat()).unwrap();
    let parts = [part(DType::I32, &[]), part(DType::F32, &[2]), part(DType::U8, &[3])];
    let mut r = reader(Format::TfRecord, &[&path], &parts);
    r.info.keys = ["label", "x", "raw"].map(String::from).to_vec();
    let all = r.all().unwrap();
    assert_eq!((int(&all[0][0]), floats(&all[0][1])), (5, vec![1.5, -2.0]));
    assert_eq!((int(&all[1][0]), floats(&all[1][1])), (-1, vec![3.0, 4.0]));
    assert_eq!(all[1][2], [9, 8, 7]);
    // Mistakes name the record's place.
    r.info.keys[0] = "lable".into();
    let e = r.all().unwrap_err();
    assert!(e.code() == "E0566" && e.notes()[0].contains("no feature `lable`"), "{e}");
    r.info.keys[0] = "label".into();
    let whole = [&first[..], &second].concat();
    for i in 0..whole.len() {
        let mut bad = whole.clone();
        bad[i] ^= 0x04;
        std::fs::write(&path, &bad).unwrap();
        let e = r.all().unwrap_err();
        assert_eq!(e.code(), "E0566", "byte {i}");
        let place = if i < first.len() { 0 } else { first.len() };
        assert!(e.notes()[0].contains(&format!("at byte {place}:")), "byte {i}: {e}");
    }
    for cut in 1..whole.len() {
        std::fs::write(&path, &whole[..cut]).unwrap();
        let ended =
            if cut == first.len() { r.all().map(|a| a.len()) } else { Err(r.all().unwrap_err()) };
        assert_eq!(
            ended.map_err(|e| e.code()),
            if cut == first.len() { Ok(1) } else { Err(ErrorCode::from("E0566")) }
        );
    }
    // Messages of random bytes with good sums.
    let mut state = 7u64;
    for n in 0..2000usize {
        let bytes: Vec<u8> = (0..n % 60)
            .map(|_| {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1);
                (state >> 56) as u8
            })
            .collect();
        std::fs::write(&path, record(&bytes)).unwrap();
        assert_eq!(r.code(), "E0566");
    }
    std::fs::write(&path, record(&[1, 2, 3])).unwrap();
    let raw = reader(Format::TfRecord, &[&path], &[part(DType::U8, &[3])]);
    assert_eq!(raw.all().unwrap(), [[vec![1, 2, 3]]]);
}

#[test]
fn a_folder_of_files() {
    let dir = tempfile::tempdir().unwrap();
    for (name, bytes) in [("b.raw", [3, 4]), ("a.raw", [1, 2])] {
        std::fs::write(dir.path().join(name), bytes).unwrap();
    }
    let r = reader(Format::Files, &[dir.path()], &[part(DType::U8, &[2])]);
    assert_eq!(r.all().unwrap(), [[vec![1, 2]], [vec![3, 4]]]);
    std::fs::write(dir.path().join("c.raw"), [1, 2, 3]).unwrap();
    assert_eq!(r.code(), "E0567");
    let none = reader(Format::Files, &[&dir.path().join("*.png")], &[part(DType::U8, &[2])]);
    assert_eq!(none.code(), "E0563");
}

#[test]
fn positions_are_gone_back_to() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.csv");
    std::fs::write(&path, "0\n1\n2\n3\n4\n").unwrap();
    let parts = [part(DType::I32, &[])];
    let mut r = reader(Format::Csv, &[&path], &parts);
    r.info.epochs = 2;
    let queues = r.queues();
    let take = |q: &Queues| next(q, &parts).unwrap().map(|v| int(&v[0]));
    for _ in 0..7 {
        take(&queues);
    }
    let at = queues.positions();
    assert_eq!(at, [("r".to_string(), vec![1, 2])]);
    let rest: Vec<i32> = std::iter::from_fn(|| take(&queues)).collect();
    assert_eq!(rest, [2, 3, 4]);
    let again = r.queues();
    again.set_positions(&at).unwrap();
    assert_eq!(std::iter::from_fn(|| take(&again)).collect::<Vec<i32>>(), rest);
    std::fs::write(&path, "0\n").unwrap();
    assert_eq!(again.set_positions(&at).unwrap_err().code(), "E0568");
    let wrong = [("r".to_string(), vec![-1])];
    assert_eq!(again.set_positions(&wrong).unwrap_err().code(), "E0568");
}

/// So many records further is where reading them would have led, over the ends of epochs.
#[test]
fn records_are_left_out_from_any_position() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("seven.csv");
    let rows: String = (0..7).map(|i| format!("{i}\n")).collect();
    std::fs::write(&file, rows).unwrap();
    let mut make = reader(Format::Csv, &[&file], &[part(DType::I32, &[])]);
    make.info.epochs = 5;
    for read in 0..30u64 {
        for further in 0..=35 - read {
            let (queues, again) = (make.queues(), make.queues());
            for _ in 0..read {
                next(&queues, &make.parts).unwrap().unwrap();
            }
            again.set_positions_after(&queues.positions(), &[(0, further)]).unwrap();
            let record = next(&again, &make.parts).unwrap();
            let number = record.map(|r| i64::from(int(&r[0])));
            let want = (read + further < 35).then_some(((read + further) % 7) as i64);
            assert_eq!(number, want, "{read} and {further} more");
        }
        let (queues, at) = (make.queues(), make.queues().positions());
        let e = queues.set_positions_after(&at, &[(0, 36 + read)]).unwrap_err();
        assert_eq!(e.code(), "E0568");
    }
}
