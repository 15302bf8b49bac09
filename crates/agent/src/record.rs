//! What the agent keeps on disk: the last good configuration, and what was there before it changed anything.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use pathcast_control::Name;
use serde::{Deserialize, Serialize};

use crate::error::AgentError;
use crate::hands::write_whole;

const FORMAT: u32 = 1;
const FILE: &str = "agent.json";

/// What is kept. It is written before anything is changed, so that a removal finds all of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Record {
    format: u32,
    /// The last configuration that was applied, as the manager sent it.
    pub(crate) configuration: Option<String>,
    /// The pool of each template in it.
    pub(crate) pools: BTreeMap<Name, String>,
    /// Namespaces that we ever put routes into; the empty name is our own.
    pub(crate) namespaces: Vec<String>,
    /// Sysctls before we changed them, by namespace and name.
    pub(crate) sysctls: BTreeMap<String, BTreeMap<String, Setting>>,
    /// HAProxy's map before we changed it.
    pub(crate) map: Option<String>,
    /// Whether our table of nftables may be there.
    pub(crate) forwards: bool,
}

/// A sysctl before and after.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Setting {
    /// What it was.
    pub(crate) before: String,
    /// All that we ever set it to.
    pub(crate) ours: Vec<String>,
}

impl Record {
    /// Reads the record; an agent that never did anything has an empty one.
    pub(crate) fn read(folder: &Path) -> Result<Self, AgentError> {
        let file = Self::file(folder);
        let at = |source| AgentError::File {
            file: file.clone(),
            source,
        };
        let text = match fs::read_to_string(&file) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(Self {
                    format: FORMAT,
                    ..Self::default()
                });
            }
            Err(error) => return Err(at(error)),
        };
        let record: Self = serde_json::from_str(&text).map_err(|error| at(error.into()))?;
        if record.format != FORMAT {
            let message = format!("got format {}, expected {FORMAT}", record.format);
            return Err(at(io::Error::other(message)));
        }
        Ok(record)
    }

    /// Writes the record.
    pub(crate) fn write(&self, folder: &Path) -> Result<(), AgentError> {
        let file = Self::file(folder);
        let text = serde_json::to_vec_pretty(self).expect("its keys are text");
        fs::create_dir_all(folder)
            .and_then(|()| write_whole(&file, &text))
            .map_err(|source| AgentError::File { file, source })
    }

    /// Removes the record, and its folder if that is empty.
    pub(crate) fn remove(folder: &Path) -> Result<(), AgentError> {
        let file = Self::file(folder);
        match fs::remove_file(&file) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(source) => return Err(AgentError::File { file, source }),
        }
        // somebody else may keep things there
        let _ = fs::remove_dir(folder);
        Ok(())
    }

    fn file(folder: &Path) -> PathBuf {
        folder.join(FILE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_as_it_was_written_and_a_newer_one_refused() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("state");
        let mut record = Record::read(&folder).unwrap();
        assert_eq!(record.configuration, None);
        record.configuration = Some("{}".into());
        record.write(&folder).unwrap();
        assert_eq!(Record::read(&folder).unwrap(), record);
        fs::write(folder.join(FILE), r#"{"format":2}"#).unwrap();
        assert!(Record::read(&folder).is_err());
        Record::remove(&folder).unwrap();
        assert!(!folder.exists());
        Record::remove(&folder).unwrap();
    }
}
