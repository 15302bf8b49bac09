//! Compiles the BPF program, if the feature is on.

use std::path::Path;
use std::process::{Command, exit};
use std::{env, fs};

const SOURCES: &str = "bpf";

fn main() {
    println!("cargo::rerun-if-changed={SOURCES}");
    println!("cargo::rerun-if-env-changed=CLANG");
    let on = env::var_os("CARGO_FEATURE_BPF").is_some();
    if !on || env::var("CARGO_CFG_TARGET_OS").as_deref() != Ok("linux") {
        return;
    }
    let clang = env::var("CLANG").unwrap_or_else(|_| "clang".into());
    let target = match env::var("CARGO_CFG_TARGET_ENDIAN").as_deref() {
        Ok("big") => "bpfeb",
        _ => "bpfel",
    };
    let out = env::var("OUT_DIR").expect("cargo says");
    for entry in fs::read_dir(SOURCES).expect("it lies beside this file") {
        let name = entry.expect("it lies beside this file").file_name();
        let name = name.to_string_lossy();
        let Some(program) = name.strip_suffix(".bpf.c") else {
            continue;
        };
        let object = Path::new(&out).join(format!("{program}.bpf.o"));
        let ran = Command::new(&clang)
            .current_dir(SOURCES) // so that the object names no folder of this machine
            .args([
                "-target", target, "-mcpu=v3", "-O2", "-g", "-Wall", "-Wextra", "-Werror",
            ])
            .args(["-fdebug-compilation-dir=.", "-c", &name, "-o"])
            .arg(&object)
            .status();
        match ran {
            Ok(status) if status.success() => {}
            Ok(status) => fail(&format!("{clang} on {SOURCES}/{name}: {status}")),
            Err(error) => fail(&format!("starting {clang:?}: {error}")),
        }
    }
}

fn fail(what: &str) -> ! {
    println!(
        "cargo::error={what}; the feature bpf needs clang (Debian: apt-get install clang libelf-dev \
         zlib1g-dev pkg-config), or build without it"
    );
    exit(1)
}
