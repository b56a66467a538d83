//! `tfc devices`: what programs can run on here.

use std::fmt::Write;
use tfc_runtime::cuda;
use tfc_runtime::io::json::quote;
use tfc_runtime::mem::human_bytes;

pub fn run(json: bool) -> String {
    let threads = tfc_runtime::Pool::global().threads();
    let gpus = cuda::devices();
    let mut out = String::new();
    if json {
        let _ = write!(out, "[{{\"device\":\"cpu\",\"threads\":{threads}}}");
        for (i, gpu) in gpus.iter().flat_map(|(_, gpus)| gpus).enumerate() {
            let (name, arch) = (quote(&gpu.name), gpu.arch);
            let _ = write!(
                out,
                ",{{\"device\":\"cuda:{i}\",\"name\":{name},\"arch\":\"sm_{arch}\",\"memory\":{},\"processors\":{}}}",
                gpu.memory, gpu.processors
            );
        }
        out.push_str("]\n");
        return out;
    }
    let _ = writeln!(out, "cpu      {threads} threads");
    match gpus {
        Ok((version, gpus)) => {
            for (i, gpu) in gpus.iter().enumerate() {
                let memory = human_bytes(gpu.memory as u64);
                let _ = writeln!(
                    out,
                    "cuda:{i}   {}, sm_{}, {memory}, {} processors",
                    gpu.name, gpu.arch, gpu.processors
                );
            }
            let (major, minor) = (version / 1000, version % 1000 / 10);
            let _ = writeln!(out, "The driver is for CUDA {major}.{minor}.");
        }
        Err(e) => {
            let _ = writeln!(out, "no GPU: {}", e.message());
        }
    }
    out
}
