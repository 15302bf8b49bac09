//! Scenario files, and simulations of paths and scenarios.

use pathcast_path::Span;
use pathcast_scenario::Scenario;
use pathcast_sim::Simulation;
use pyo3::prelude::*;

use crate::errors::{PathFileError, of_simulation};
use crate::path::{beside, parse as parse_path};

/// Parses a scenario's text; `file` names it in errors.
pub fn parse(text: &str, file: &str) -> PyResult<Scenario> {
    Scenario::parse(text, file).map_err(|error| PathFileError::new_err(error.to_string()))
}

/// What to simulate: with schemes, bulk flows over the path that the text is; else the scenario that
/// it is.
pub fn simulation(
    text: &str,
    file: &str,
    schemes: Option<Vec<String>>,
    duration_s: f64,
    seed: u64,
) -> PyResult<Simulation> {
    let scenario = match schemes {
        Some(schemes) => Scenario::bulk(parse_path(text, file)?, schemes),
        None => parse(text, file)?,
    };
    Ok(Simulation {
        scenario,
        duration: Span::from_secs(duration_s),
        seed,
    })
}

/// As [`simulation`], if it can be run.
pub fn checked_simulation(
    text: &str,
    file: &str,
    schemes: Option<Vec<String>>,
    duration_s: f64,
    seed: u64,
) -> PyResult<Simulation> {
    let spec = simulation(text, file, schemes, duration_s, seed)?;
    spec.check().map_err(|error| of_simulation("", &error))?;
    Ok(spec)
}

/// Whether a file's text is a scenario rather than a path.
#[pyfunction]
pub fn is_scenario(text: &str) -> bool {
    Scenario::is_scenario(text)
}

/// Reads a scenario's text and returns it with every default written out; with `load_files`, also
/// the files that it names, from the folder of `file`.
#[pyfunction]
#[pyo3(signature = (text, file, load_files = false))]
pub fn check_scenario(text: &str, file: &str, load_files: bool) -> PyResult<String> {
    if !load_files {
        return Ok(parse(text, file)?.to_toml());
    }
    let scenario = Scenario::parse_with(text, file, &mut beside(file));
    scenario
        .map(|scenario| scenario.to_toml())
        .map_err(|error| PathFileError::new_err(error.to_string()))
}

/// The scenario of one flow a scheme over a path, all with the workload that the text says.
#[pyfunction]
pub fn scenario_over(
    path_text: &str,
    file: &str,
    schemes: Vec<String>,
    workload: &str,
) -> PyResult<String> {
    let path = parse_path(path_text, file)?;
    let mut scenario = Scenario::bulk(path, schemes);
    scenario
        .set_workload(workload)
        .map_err(|error| PathFileError::new_err(format!("workload: {error}")))?;
    Ok(scenario.to_toml())
}

/// The links that the first flow of a scenario crosses, one by one, as paths.
#[pyfunction]
pub fn first_route(text: &str, file: &str) -> PyResult<Vec<String>> {
    let scenario = parse(text, file)?;
    let route = scenario.flows.first().map_or(&[][..], |flow| &flow.route);
    let links = route
        .iter()
        .map(|&link| scenario.links[link].path.to_toml());
    Ok(links.collect())
}

/// Name, duration (s or None), and of each flow its scheme and workload.
type Summary = (String, Option<f64>, Vec<(String, String)>);

/// What the command line and Python want to know of a scenario.
#[pyfunction]
pub fn scenario_summary(text: &str, file: &str) -> PyResult<Summary> {
    let scenario = parse(text, file)?;
    let flows = scenario.flows().map(|flow| {
        let scheme = flow.spec.transport.scheme().to_string();
        (scheme, flow.spec.workload.kind().to_string())
    });
    let flows = flows.collect();
    let duration_s = scenario.duration.map(Span::as_secs);
    Ok((scenario.name, duration_s, flows))
}
