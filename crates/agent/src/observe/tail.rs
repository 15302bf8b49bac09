//! Follows a log as it grows, over its rotation.

use std::fs::{File, Metadata};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Longest line that is read; a longer one is passed over.
const LONGEST_LINE: usize = 16 << 10;
/// Bytes of one look, so that a log that grows fast does not hold the rest up.
const MOST_BYTES: u64 = 16 << 20;

/// A log, and how far it was read.
pub(crate) struct Tail {
    path: PathBuf,
    open: Option<(File, u64)>,
    /// The beginning of a line whose end is not written yet.
    rest: Vec<u8>,
}

impl Tail {
    /// Follows a log from its end now. It may not be there yet.
    pub(crate) fn at_the_end(path: &Path) -> Self {
        let open = || -> io::Result<(File, u64)> {
            let mut file = File::open(path)?;
            file.seek(SeekFrom::End(0))?;
            let inode = file.metadata()?.ino();
            Ok((file, inode))
        };
        Self {
            path: path.into(),
            open: open().ok(),
            rest: Vec::new(),
        }
    }

    /// Hands over each line that was written since the last call.
    pub(crate) fn read(&mut self, mut take: impl FnMut(&str)) -> io::Result<()> {
        if let Some((file, _)) = &mut self.open {
            let size = file.metadata()?.len();
            if size < file.stream_position()? {
                file.seek(SeekFrom::Start(0))?; // it was cut off: copytruncate
                self.rest.clear();
            }
            lines(file, &mut self.rest, &mut take)?;
        }
        let now: Metadata = match std::fs::metadata(&self.path) {
            Ok(now) => now,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        };
        if self
            .open
            .as_ref()
            .is_some_and(|(_, inode)| *inode == now.ino())
        {
            return Ok(());
        }
        let mut file = File::open(&self.path)?;
        let inode = file.metadata()?.ino();
        self.rest.clear();
        lines(&mut file, &mut self.rest, &mut take)?;
        self.open = Some((file, inode));
        Ok(())
    }
}

fn lines(file: &mut File, rest: &mut Vec<u8>, take: &mut impl FnMut(&str)) -> io::Result<()> {
    file.take(MOST_BYTES).read_to_end(rest)?;
    let mut begin = 0;
    while let Some(length) = rest[begin..].iter().position(|byte| *byte == b'\n') {
        let line = &rest[begin..begin + length];
        if length <= LONGEST_LINE && length > 0 {
            take(&String::from_utf8_lossy(line));
        }
        begin += length + 1;
    }
    rest.drain(..begin);
    if rest.len() > LONGEST_LINE {
        // what is kept is too long already: it stays too long, and is not handed over
        rest.truncate(LONGEST_LINE + 1);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs::{self, OpenOptions};
    use std::io::Write;

    use super::*;

    fn append(path: &Path, text: &str) {
        let mut file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(path)
            .unwrap();
        file.write_all(text.as_bytes()).unwrap();
    }

    fn read(tail: &mut Tail) -> Vec<String> {
        let mut found = Vec::new();
        tail.read(|line| found.push(line.to_string())).unwrap();
        found
    }

    #[test]
    fn new_lines_are_read_once_over_rotation_and_cutting() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        append(&path, "old\n");
        let mut tail = Tail::at_the_end(&path);
        assert!(read(&mut tail).is_empty());
        append(&path, "a\nb");
        assert_eq!(read(&mut tail), ["a"]);
        append(&path, "c\n");
        fs::rename(&path, folder.path().join("log.1")).unwrap();
        append(&path, "d\n");
        assert_eq!(read(&mut tail), ["bc", "d"]);
        fs::write(&path, "").unwrap();
        assert!(read(&mut tail).is_empty());
        append(&path, &format!("{}\ne\n", "x".repeat(LONGEST_LINE + 1)));
        assert_eq!(read(&mut tail), ["e"]);
        append(&path, &"y".repeat(3 * LONGEST_LINE));
        assert!(read(&mut tail).is_empty());
        append(&path, "y\nf\n");
        assert_eq!(read(&mut tail), ["f"]);
    }

    #[test]
    fn a_log_that_comes_later_is_read_from_its_beginning() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let mut tail = Tail::at_the_end(&path);
        assert!(read(&mut tail).is_empty());
        append(&path, "a\n");
        assert_eq!(read(&mut tail), ["a"]);
    }
}
