//! Reads a state folder at the start.

use std::fs::File;
use std::io::{self, BufReader};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::mpsc::sync_channel;
use std::thread;

use pathcast_decide::Sample;

use super::frame::{self, Frame};
use super::snapshot::{Piece, VERSION};
use super::stored::read_batch;
use super::{StoreCounters, generations, log_file, snapshot_file};
use crate::knowledge::{Knowledge, PARTS};

/// Frames that were read and wait for the others.
const AHEAD: usize = 16;

/// Reads the newest snapshot and the logs since; returns the newest generation.
///
/// # Errors
/// If a file cannot be read. Damaged frames are skipped and counted.
pub fn read(folder: &Path, knowledge: &Knowledge, counters: &StoreCounters) -> io::Result<u64> {
    let damaged = || counters.damaged.fetch_add(1, Ordering::Relaxed);
    let snapshots = generations(folder, "snapshot");
    let from = snapshots.last().copied();
    if let Some(generation) = from {
        let mut file = File::open(snapshot_file(folder, generation))?;
        let put = |content: Vec<u8>| {
            if !restore(&content, knowledge) {
                damaged();
            }
        };
        // what another version wrote has another layout: none of it is read
        match version(&frame::next(&mut file)?) {
            Some(VERSION) => {
                let whole = in_parallel(file, &put, &damaged)?;
                if !whole {
                    damaged();
                }
            }
            Some(other) => counters.other_version.store(other, Ordering::Relaxed),
            None => {
                damaged();
            }
        }
    }
    let logs = generations(folder, "log");
    for &generation in logs
        .iter()
        .filter(|log| from.is_none_or(|from| **log >= from))
    {
        let file = File::open(log_file(folder, generation))?;
        replay(file, knowledge, &damaged)?;
    }
    let newest = snapshots.last().max(logs.last());
    Ok(newest.copied().unwrap_or(0))
}

/// The version that the first frame of a snapshot says.
fn version(first: &Frame) -> Option<u32> {
    let Frame::Whole(content) = first else {
        return None;
    };
    match postcard::from_bytes(content) {
        Ok(Piece::Begin(version)) => Some(version),
        _ => None,
    }
}

/// Puts back one piece; whether it was valid.
fn restore(content: &[u8], knowledge: &Knowledge) -> bool {
    match postcard::from_bytes(content) {
        Ok(Piece::Part(number, batch, entries)) if usize::from(number) < PARTS => {
            knowledge.restore_part(number.into(), batch, entries);
            true
        }
        Ok(Piece::Groups(batch, groups)) => {
            knowledge.restore_groups(batch, groups);
            true
        }
        Ok(Piece::End) => true,
        _ => false,
    }
}

/// Calls `put` with each frame, on two threads; whether the file is whole.
fn in_parallel(
    file: File,
    put: &(impl Fn(Vec<u8>) + Sync),
    damaged: &(impl Fn() -> u64 + Sync),
) -> io::Result<bool> {
    thread::scope(|scope| {
        let (sender, receiver) = sync_channel::<Vec<u8>>(AHEAD);
        let other = scope.spawn(move || receiver.into_iter().for_each(put));
        let mut file = BufReader::with_capacity(1 << 20, file);
        let mut is_mine = false;
        let whole = loop {
            match frame::next(&mut file)? {
                Frame::Whole(content) => {
                    is_mine = !is_mine;
                    if is_mine {
                        put(content);
                    } else if sender.send(content).is_err() {
                        break false;
                    }
                }
                Frame::Damaged => {
                    damaged();
                }
                Frame::CutOff => break false,
                Frame::End => break true,
            }
        };
        drop(sender);
        Ok(other.join().is_ok() && whole)
    })
}

/// Takes the batches of a log again: one thread reads, another one takes. A frame that was cut off ends a log as
/// a rule, when the service was killed.
fn replay(
    file: File,
    knowledge: &Knowledge,
    damaged: &(impl Fn() -> u64 + Sync),
) -> io::Result<()> {
    thread::scope(|scope| {
        let (sender, receiver) = sync_channel::<(u64, Vec<Sample>)>(AHEAD);
        scope.spawn(move || {
            for (batch, samples) in receiver {
                knowledge.update(batch, &samples, |_, _| ());
            }
        });
        let mut file = BufReader::with_capacity(1 << 20, file);
        loop {
            match frame::next(&mut file)? {
                Frame::Whole(content) => {
                    let Some(batch) = read_batch(&content) else {
                        damaged();
                        continue;
                    };
                    if sender.send(batch).is_err() {
                        break;
                    }
                }
                Frame::Damaged => {
                    damaged();
                }
                Frame::CutOff | Frame::End => break,
            }
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;
    use std::io::Write;

    use pathcast_decide::{Client, Networks};

    use super::*;
    use crate::error::ServiceError;
    use crate::store::{Store, snapshot};

    fn knowledge() -> Knowledge {
        Knowledge::new(1000, 600.0, Networks::default())
    }

    fn samples(begin: u32) -> Vec<Sample> {
        (begin..begin + 100)
            .map(|number| Sample {
                client: Client::parse(&format!("10.{}.{}.1", number % 7, number % 11)).unwrap(),
                time_s: 1000.0 + f64::from(number),
                rate_bps: Some(f64::from(1 + number % 13) * 1e6),
                duration_s: Some(0.25),
                rtt_s: Some(0.05),
                min_rtt_s: None,
                sent: None,
            })
            .collect()
    }

    fn take(store: &Store, knowledge: &Knowledge, batch: u64) {
        let samples = samples(u32::try_from(batch).unwrap() * 100);
        store.append(batch, &samples);
        knowledge.update(batch, &samples, |_, _| ());
    }

    /// All that is known, as text.
    fn known(knowledge: &Knowledge) -> Vec<String> {
        let mut all = Vec::new();
        for number in 0..PARTS {
            knowledge.store_part(number, |batch, table| {
                all.extend(
                    table
                        .iter()
                        .map(|(prefix, entry)| format!("{batch} {prefix} {entry:?}")),
                );
            });
        }
        all.push(format!("{:?}", knowledge.store_groups()));
        all
    }

    #[test]
    fn what_was_known_comes_back_from_the_log_from_a_snapshot_and_from_both() {
        let folder = tempfile::tempdir().unwrap();
        let mut before = knowledge();
        let mut batch = 0;
        for snapshot_first in [false, true, true, false] {
            let store = Store::open(folder.path(), &before).unwrap();
            for _ in 0..3 {
                batch += 1;
                take(&store, &before, batch);
            }
            if snapshot_first {
                store.snapshot(&before);
            }
            batch += 1;
            take(&store, &before, batch);
            store.write(true);
            drop(store);
            let after = knowledge();
            let again = Store::open(folder.path(), &after).unwrap();
            assert_eq!(known(&after), known(&before));
            assert_eq!(after.last_batch(), batch);
            assert_eq!(again.counters.damaged.load(Ordering::Relaxed), 0);
            before = after;
        }
    }

    #[test]
    fn a_log_that_is_cut_off_loses_its_end_alone() {
        let folder = tempfile::tempdir().unwrap();
        let before = knowledge();
        let store = Store::open(folder.path(), &before).unwrap();
        take(&store, &before, 1);
        store.write(true);
        drop(store);
        let log = log_file(folder.path(), 1);
        OpenOptions::new()
            .append(true)
            .open(log)
            .unwrap()
            .write_all(b"\x09\0\0\0cut")
            .unwrap();
        let after = knowledge();
        Store::open(folder.path(), &after).unwrap();
        assert_eq!(known(&after), known(&before));
    }

    #[test]
    fn a_damaged_part_of_a_snapshot_is_counted_and_the_others_come_back() {
        let folder = tempfile::tempdir().unwrap();
        let before = knowledge();
        let store = Store::open(folder.path(), &before).unwrap();
        take(&store, &before, 1);
        store.snapshot(&before);
        drop(store);
        let file = snapshot_file(folder.path(), 2);
        let mut bytes = std::fs::read(&file).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 0xff;
        std::fs::write(&file, bytes).unwrap();
        let after = knowledge();
        let again = Store::open(folder.path(), &after).unwrap();
        assert!(again.counters.damaged.load(Ordering::Relaxed) >= 1);
        assert!(
            after.totals().0 + 1 >= before.totals().0,
            "{:?}",
            after.totals()
        );
    }

    #[test]
    fn a_snapshot_of_another_version_is_left_out_and_the_log_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let before = knowledge();
        let store = Store::open(folder.path(), &before).unwrap();
        take(&store, &before, 1);
        store.snapshot(&before);
        take(&store, &before, 2);
        store.write(true);
        drop(store);
        let file = snapshot_file(folder.path(), 2);
        let bytes = std::fs::read(&file).unwrap();
        let mut other = Vec::new();
        frame::append(&mut other, |content| {
            let begin = snapshot::Written::Begin(VERSION - 1);
            content.extend(postcard::to_stdvec(&begin).unwrap());
        });
        // the frames that follow are as they were: only the version keeps them from being read
        let first = 8 + usize::from(bytes[0]);
        other.extend(&bytes[first..]);
        std::fs::write(&file, other).unwrap();
        let after = knowledge();
        let again = Store::open(folder.path(), &after).unwrap();
        let counters = &again.counters;
        assert_eq!(counters.other_version.load(Ordering::Relaxed), VERSION - 1);
        assert_eq!(counters.damaged.load(Ordering::Relaxed), 0);
        let only_log = knowledge();
        only_log.update(2, &samples(200), |_, _| ());
        assert_eq!(after.totals().0, only_log.totals().0);
        assert_eq!(after.last_batch(), 2);
        // the next snapshot replaces it
        again.snapshot(&after);
        assert!(!file.exists());
    }

    #[test]
    fn a_folder_belongs_to_one_service() {
        let folder = tempfile::tempdir().unwrap();
        let first = Store::open(folder.path(), &knowledge()).unwrap();
        let second = Store::open(folder.path(), &knowledge());
        assert!(matches!(second, Err(ServiceError::InUse(_))));
        drop(first);
        assert!(Store::open(folder.path(), &knowledge()).is_ok());
    }
}
