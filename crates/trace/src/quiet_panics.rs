//! Converts panics of a library on hostile input to values, without a message on standard error.

use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

thread_local! {
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Runs `work`. If it panics, returns the panic's message without running the process's panic hook.
///
/// For readers that own all their data: no half-changed state outlives the panic.
pub fn catch<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    static INSTALL: Once = Once::new();
    INSTALL.call_once(|| {
        let previous = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !QUIET.get() {
                previous(info);
            }
        }));
    });
    QUIET.set(true);
    let outcome = panic::catch_unwind(AssertUnwindSafe(work));
    QUIET.set(false);
    outcome.map_err(|payload| {
        let text = payload.downcast_ref::<&str>().map(ToString::to_string);
        text.or_else(|| payload.downcast_ref::<String>().cloned())
            .unwrap_or_else(|| "the reader gave up".to_string())
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_panic_becomes_its_message() {
        assert_eq!(super::catch(|| 1), Ok(1));
        assert_eq!(
            super::catch(|| panic!("page {}", 7)),
            Err::<(), _>("page 7".to_string())
        );
    }
}
