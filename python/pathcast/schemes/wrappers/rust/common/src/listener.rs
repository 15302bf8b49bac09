//! Hears in an implementation's own log which controller is at work.

use std::sync::{Mutex, OnceLock};

use log::{LevelFilter, Log, Metadata, Record};

/// Finds in a line of a log the controller's name, and what to show of the line.
pub type Find = fn(&str) -> Option<(String, String)>;

struct Listener {
    target: &'static str,
    find: Find,
    heard: Mutex<Option<(String, String)>>,
}

static LISTENER: OnceLock<Listener> = OnceLock::new();

/// Listens to what modules whose path has `target` in it log, until `find` finds something; then nothing is logged any
/// more.
pub fn listen(target: &'static str, find: Find) {
    let listener = LISTENER.get_or_init(|| Listener {
        target,
        find,
        heard: Mutex::new(None),
    });
    if log::set_logger(listener).is_ok() {
        log::set_max_level(LevelFilter::Trace);
    }
}

/// The controller and the evidence, once found.
pub fn heard() -> Option<(String, String)> {
    LISTENER.get()?.heard.lock().ok()?.clone()
}

impl Log for Listener {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().contains(self.target)
    }

    fn log(&self, record: &Record<'_>) {
        if !self.enabled(record.metadata()) {
            return;
        }
        if let Some(found) = (self.find)(&record.args().to_string()) {
            log::set_max_level(LevelFilter::Off);
            if let Ok(mut heard) = self.heard.lock() {
                *heard = Some(found);
            }
        }
    }

    fn flush(&self) {}
}
