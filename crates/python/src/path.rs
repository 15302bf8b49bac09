//! Files in the folder of a path file, and paths in the formats of other tools.

use std::io::Read;

use pathcast_path::{Path, foreign, link};
use pathcast_scenario::{FlowSpec, Link, Scenario, Transport};
use pyo3::prelude::*;

use crate::errors::PathFileError;
use crate::specs::PathSpec;

/// Loads files by their names relative to the folder of `file`.
pub fn beside(file: &str) -> impl FnMut(&str) -> Result<Vec<u8>, String> {
    let folder = std::path::Path::new(file)
        .parent()
        .unwrap_or_else(|| "".as_ref())
        .to_path_buf();
    move |name| {
        let file = folder.join(name);
        // to open a named pipe would wait for a writer
        if std::fs::metadata(&file).is_ok_and(|found| !found.is_file()) {
            return Err("expected a file".to_string());
        }
        let file = std::fs::File::open(file).map_err(|error| error.to_string())?;
        let (mut content, most) = (Vec::new(), link::MAX_TRACE_BYTES as u64 + 1);
        let read = file.take(most).read_to_end(&mut content);
        read.map(|_| content).map_err(|error| error.to_string())
    }
}

/// A text, files that it needs by their names, and what it does not say.
type Foreign = (String, Vec<(String, String)>, Vec<String>);

/// Moves the traces that a path or scenario has written out into files; the text, and their names and contents.
#[pyfunction]
pub fn traces_to_files(toml: &str) -> (String, Vec<(String, String)>) {
    link::traces_to_files(toml)
}

/// A path in the words of another tool: `mahimahi`, `netem` or `rattan`.
#[pyfunction]
pub fn path_as(spec: &PathSpec, tool: &str) -> PyResult<Foreign> {
    let path = &spec.path;
    let foreign = match tool {
        "mahimahi" => foreign::mahimahi::write(path),
        "netem" => foreign::netem::write(path),
        "rattan" => foreign::rattan::write(path),
        _ => return Err(PathFileError::new_err(format!("no words of {tool:?}"))),
    };
    Ok((foreign.text, foreign.files, foreign.lost))
}

/// The file that says the same, its links one by one from the command outwards, the command, where the
/// logs of the uplink and the downlink were to go, what was left out.
type CommandLine = (
    String,
    Vec<String>,
    Vec<String>,
    (Option<String>, Option<String>),
    Vec<String>,
);

/// Reads the words of a command line of mahimahi's shells; traces are relative to the working folder.
#[pyfunction]
pub fn from_mahimahi(words: Vec<String>) -> PyResult<CommandLine> {
    let line = foreign::mahimahi::read(&words, &mut beside("")).map_err(PathFileError::new_err)?;
    let whole = match &line.links[..] {
        [path] => path.to_toml(),
        links => in_a_row(links).to_toml(),
    };
    Ok((
        whole,
        line.links.iter().map(Path::to_toml).collect(),
        line.command,
        (line.uplink_log, line.downlink_log),
        line.left_out,
    ))
}

/// The path that tc commands say, as TOML, and what was left out.
#[pyfunction]
pub fn from_netem(text: &str) -> PyResult<(String, Vec<String>)> {
    let read = foreign::netem::read(text).map_err(PathFileError::new_err)?;
    Ok((read.path.to_toml(), read.left_out))
}

/// The path of a rattan configuration as TOML, and what was left out; traces are in the folder of `file`.
#[pyfunction]
pub fn from_rattan(text: &str, file: &str) -> PyResult<(String, Vec<String>)> {
    let read = foreign::rattan::read(text, &mut beside(file));
    let read = read.map_err(|why| PathFileError::new_err(format!("{file}: {why}")))?;
    Ok((read.path.to_toml(), read.left_out))
}

/// A bulk flow over links in a row.
fn in_a_row(links: &[Path]) -> Scenario {
    let links = (1..).zip(links).map(|(number, path): (u32, _)| Link {
        name: format!("shell{number}"),
        path: path.clone(),
    });
    let links: Vec<_> = links.collect();
    let flow = FlowSpec {
        route: (0..links.len()).collect(),
        ..FlowSpec::bulk(Transport::tcp("cubic"))
    };
    Scenario {
        name: String::new(),
        duration: None,
        links,
        flows: vec![flow],
    }
}
