//! Threads for what takes milliseconds, beside those that answer requests.

use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

/// What a thread does.
type Job = Box<dyn FnOnce() + Send>;

/// Threads that do what is sent to them, the least urgent of the process.
#[derive(Debug)]
pub struct Workers {
    sender: Option<SyncSender<Job>>,
    threads: Vec<JoinHandle<()>>,
}

impl Workers {
    /// So many threads, for which at most `waiting` jobs wait.
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn start(name: &str, threads: usize, waiting: usize) -> std::io::Result<Self> {
        let (sender, receiver) = sync_channel::<Job>(waiting);
        let receiver = Arc::new(Mutex::new(receiver));
        let threads = (0..threads).map(|_| {
            let receiver = Arc::clone(&receiver);
            thread::Builder::new()
                .name(name.into())
                .spawn(move || work(&receiver))
        });
        Ok(Self {
            sender: Some(sender),
            threads: threads.collect::<Result<_, _>>()?,
        })
    }

    /// Sends a job; false if too many wait.
    pub fn send(&self, job: impl FnOnce() + Send + 'static) -> bool {
        let sent = self
            .sender
            .as_ref()
            .map(|sender| sender.try_send(Box::new(job)));
        !matches!(
            sent,
            None | Some(Err(TrySendError::Full(_) | TrySendError::Disconnected(_)))
        )
    }
}

impl Drop for Workers {
    /// Waits for the jobs that were sent.
    fn drop(&mut self) {
        self.sender = None;
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn work(receiver: &Mutex<Receiver<Job>>) {
    // answers go first; a system that does not allow it works all the same
    #[cfg(target_os = "linux")]
    let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), 5);
    loop {
        let job = receiver
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .recv();
        let Ok(job) = job else { return };
        // what is wrong with one request is not with the next
        let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(job));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[test]
    fn jobs_are_done_even_after_one_that_panics() {
        let done = Arc::new(AtomicU32::new(0));
        let workers = Workers::start("test", 1, 10).unwrap();
        assert!(workers.send(|| panic!("a job")));
        for _ in 0..5 {
            let done = Arc::clone(&done);
            assert!(workers.send(move || {
                done.fetch_add(1, Ordering::Relaxed);
            }));
        }
        drop(workers);
        assert_eq!(done.load(Ordering::Relaxed), 5);
    }
}
