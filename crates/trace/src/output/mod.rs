//! Writes output files completely or not at all, and never over somebody else's file.
//!
//! The owner of the output folder can exchange its entries at any time, and may not be the user of
//! this process. So the folder is opened once, and all later steps use descriptors. A part file
//! gets a random name that must be new, and belongs to its owner alone. Its permissions are set on
//! the descriptor, and it is renamed within the folder. A link at the final name is replaced, never
//! followed. For a [`User`], who ran sudo, each step within the folder uses that user's permissions
//! instead of root's.
//!
//! FIFOs, character devices (`/dev/null`) and this process's own descriptors (`/dev/stdout`) are
//! written directly: there is nothing to replace.

mod rights;
#[cfg(test)]
mod tests;

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};

use rustix::fs::{
    Access, AtFlags, CWD, FileType, Mode, OFlags, accessat, fchmod, fstat, linkat, open, openat,
    readlinkat, renameat, statat, unlinkat,
};
use rustix::io::Errno;

use crate::error::TraceError;
use rights::as_user;

/// Most names to try for a part file; more collisions indicate another problem.
const TRIES: u32 = 16;

/// Bytes of the final name that the part file's name contains: most file systems allow 255 in all.
const NAME_IN_PART: usize = 200;

/// The user id and group id of a file's owner, if that is not the user of this process.
pub type User = (u32, u32);

/// Writes a file next to its final place and renames it there when it is complete, so that nobody
/// sees a partial file. On an error, such as a full disk, the partial file is removed.
///
/// # Errors
/// A [`TraceError`] that names `path`, with the error of `write`, or of creating or renaming.
pub fn write_beside<T>(
    path: &Path,
    write: impl FnOnce(&mut File) -> Result<T, String>,
) -> Result<T, TraceError> {
    write_beside_for(None, path, write)
}

/// Writes a file like [`write_beside`], with the permissions of `user` in the file's folder, and
/// owned by `user`. This needs root.
///
/// # Errors
/// As [`write_beside`]; also if `user` may not write there.
pub fn write_beside_for<T>(
    user: Option<User>,
    path: &Path,
    write: impl FnOnce(&mut File) -> Result<T, String>,
) -> Result<T, TraceError> {
    let written = || match Place::find(path, user)? {
        Place::Stream(mut file) => {
            let value = write(&mut file).map_err(unwritten)?;
            file.flush().map_err(unwritten)?;
            Ok(value)
        }
        Place::Entry(entry) => {
            let mode = Mode::from_raw_mode(0o666 & !umask());
            let part = entry.written(mode, write).map_err(unwritten)?;
            part.replace(entry.name).map_err(unwritten)
        }
    };
    written().map_err(|message| TraceError::new(path, message))
}

/// Writes a secret to a new file that only its owner can read.
///
/// # Errors
/// If the name already exists, or the file cannot be written.
pub fn write_new_secret(path: &Path, content: &[u8]) -> io::Result<()> {
    let entry = Entry {
        folder: open_folder(path)?,
        name: name_of(path).map_err(io::Error::other)?,
        user: None,
    };
    let write = |file: &mut File| file.write_all(content).map_err(|e| e.to_string());
    let part = entry.written(Mode::RUSR | Mode::WUSR, write);
    part.map_err(io::Error::other)?.link(entry.name)
}

/// Refuses a path that [`write_beside_for`] could not write, before any long work begins.
///
/// # Errors
/// A [`TraceError`] that names the obstacle.
pub fn check_writable(path: &Path, user: Option<User>) -> Result<(), TraceError> {
    let found = Place::look(path, user);
    found
        .map(drop)
        .map_err(|message| TraceError::new(path, message))
}

/// Removes a written file. FIFOs and devices, which were written directly, stay.
pub fn remove_written(path: &Path) {
    if let (Ok(folder), Ok(name)) = (open_folder(path), name_of(path))
        && let Ok(found) = statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW)
        && FileType::from_raw_mode(found.st_mode) == FileType::RegularFile
    {
        let _ = unlinkat(&folder, name, AtFlags::empty());
    }
}

/// What a path refers to.
enum Found<'a> {
    /// A descriptor of this process.
    Descriptor(OsString),
    /// A FIFO or a character device, with its identity.
    Stream(Entry<'a>, (u64, u64)),
    /// A file, a link or nothing: it will be replaced.
    Entry(Entry<'a>),
}

/// The destination of the bytes.
enum Place<'a> {
    Stream(File),
    Entry(Entry<'a>),
}

impl<'a> Place<'a> {
    /// Returns what is at the path, and whether it may be written. Opens only the folder.
    fn look(path: &'a Path, user: Option<User>) -> Result<Found<'a>, String> {
        if let Some(number) = own_descriptor(path) {
            return Ok(Found::Descriptor(number));
        }
        let name = name_of(path)?;
        let folder = open_folder(path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => unwritten(format_args!(
                "there is no folder {}",
                folder_of(path).display()
            )),
            _ => unwritten(error),
        })?;
        let entry = Entry { folder, name, user };
        let found = match statat(&entry.folder, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(found) => found,
            Err(Errno::NOENT) => return entry.if_allowed(path).map(Found::Entry),
            Err(error) => return Err(unwritten(io::Error::from(error))),
        };
        match FileType::from_raw_mode(found.st_mode) {
            FileType::RegularFile => entry.if_allowed(path).map(Found::Entry),
            FileType::Symlink => {
                let target = readlinkat(&entry.folder, name, Vec::new());
                let target = target.map_err(|error| unwritten(io::Error::from(error)))?;
                let target = Path::new(OsStr::from_bytes(target.to_bytes()));
                if let Some(number) = own_descriptor(target) {
                    return Ok(Found::Descriptor(number));
                }
                match statat(&entry.folder, name, AtFlags::empty()) {
                    Ok(found) if !is_file(found.st_mode) => Err(format!(
                        "is a link to {}, expected the name of a file to write",
                        kind(found.st_mode)
                    )),
                    _ => entry.if_allowed(path).map(Found::Entry),
                }
            }
            FileType::Fifo | FileType::CharacterDevice => {
                let access = || accessat(&entry.folder, name, Access::WRITE_OK, AtFlags::EACCESS);
                as_user(user, || access().map_err(io::Error::from)).map_err(unwritten)?;
                let which = (found.st_dev, found.st_ino);
                Ok(Found::Stream(entry, which))
            }
            _ => Err(format!(
                "is {}, expected the name of a file to write",
                kind(found.st_mode)
            )),
        }
    }

    fn find(path: &'a Path, user: Option<User>) -> Result<Self, String> {
        match Self::look(path, user)? {
            Found::Entry(entry) => Ok(Self::Entry(entry)),
            Found::Descriptor(number) => {
                let file = as_user(user, || descriptor(&number)).map_err(unwritten)?;
                Ok(Self::Stream(file))
            }
            Found::Stream(entry, which) => {
                let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::NOCTTY | OFlags::CLOEXEC;
                let open = || openat(&entry.folder, entry.name, flags, Mode::empty());
                let opened = as_user(user, || open().map_err(io::Error::from));
                let opened = opened.map_err(unwritten)?;
                let found = fstat(&opened).map_err(|error| unwritten(io::Error::from(error)))?;
                if (found.st_dev, found.st_ino) != which {
                    return Err(unwritten("it was exchanged for something else"));
                }
                Ok(Self::Stream(opened.into()))
            }
        }
    }
}

/// A name in a folder.
struct Entry<'a> {
    folder: OwnedFd,
    name: &'a OsStr,
    user: Option<User>,
}

impl Entry<'_> {
    /// Returns itself if files may be created in its folder.
    fn if_allowed(self, path: &Path) -> Result<Self, String> {
        let access = Access::WRITE_OK | Access::EXEC_OK;
        let allowed = || accessat(&self.folder, ".", access, AtFlags::EACCESS);
        match as_user(self.user, || allowed().map_err(io::Error::from)) {
            Ok(()) => Ok(self),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                let folder = folder_of(path).display();
                Err(match self.user {
                    Some((user, _)) => unwritten(format_args!(
                        "user {user}, who ran sudo, has no permission in {folder}; expected a folder \
                         that they may write to, for the file is theirs"
                    )),
                    None => unwritten(format_args!("no permission in {folder}")),
                })
            }
            Err(error) => Err(unwritten(error)),
        }
    }

    /// Creates a part file next to it, with what `write` writes.
    fn written<T>(
        &self,
        mode: Mode,
        write: impl FnOnce(&mut File) -> Result<T, String>,
    ) -> Result<Part<'_, T>, String> {
        let (mut file, mut part) = self.part().map_err(|error| error.to_string())?;
        part.value = Some(write(&mut file)?);
        let mut finish = || -> io::Result<()> {
            file.flush()?;
            fchmod(&file, mode)?;
            file.sync_all()
        };
        finish().map_err(|error| error.to_string())?;
        Ok(part)
    }

    fn part<T>(&self) -> io::Result<(File, Part<'_, T>)> {
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut tried = 0;
        loop {
            tried += 1;
            let name = part_name(self.name);
            let mode = Mode::RUSR | Mode::WUSR;
            let open = || openat(&self.folder, &name, flags, mode).map_err(io::Error::from);
            match as_user(self.user, open) {
                Ok(opened) => {
                    let (folder, user) = (&self.folder, self.user);
                    let part = Part {
                        folder,
                        name,
                        user,
                        value: None,
                    };
                    return Ok((opened.into(), part));
                }
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists && tried < TRIES => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// A part file, removed on drop unless it is renamed, and the result of writing it.
struct Part<'a, T> {
    folder: &'a OwnedFd,
    /// Empty if there is nothing to remove.
    name: OsString,
    user: Option<User>,
    value: Option<T>,
}

impl<T> Part<'_, T> {
    /// Renames it to `name`, replacing what is there.
    fn replace(mut self, name: &OsStr) -> io::Result<T> {
        let rename = || renameat(self.folder, &self.name, self.folder, name);
        as_user(self.user, || rename().map_err(io::Error::from))?;
        self.name.clear();
        Ok(self.value.take().expect("it was written"))
    }

    /// Links it to `name`, which must not exist.
    fn link(mut self, name: &OsStr) -> io::Result<T> {
        let folder = self.folder;
        linkat(folder, &self.name, folder, name, AtFlags::empty())?;
        Ok(self.value.take().expect("it was written"))
    }
}

impl<T> Drop for Part<'_, T> {
    fn drop(&mut self) {
        if !self.name.is_empty() {
            let unlink = || unlinkat(self.folder, &self.name, AtFlags::empty());
            let _ = as_user(self.user, || unlink().map_err(io::Error::from));
        }
    }
}

/// An error message that a file cannot be written.
fn unwritten(why: impl std::fmt::Display) -> String {
    format!("cannot be written: {why}")
}

fn name_of(path: &Path) -> Result<&OsStr, String> {
    let name = path.file_name();
    name.ok_or_else(|| "is no file name, expected the name of a file to write".to_string())
}

fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// Opens the folder of a file.
fn open_folder(path: &Path) -> io::Result<OwnedFd> {
    #[cfg(target_os = "linux")]
    let flags = OFlags::PATH; // needs no permission to list the folder
    #[cfg(not(target_os = "linux"))]
    let flags = OFlags::RDONLY;
    let flags = flags | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(openat(CWD, folder_of(path), flags, Mode::empty())?)
}

/// A hidden, unpredictable name next to `name`.
fn part_name(name: &OsStr) -> OsString {
    let kept = &name.as_bytes()[..name.len().min(NAME_IN_PART)];
    // the standard library seeds its hash keys from system randomness
    let random = RandomState::new().hash_one(std::process::id());
    let name = [b".", kept, format!(".{random:016x}.part").as_bytes()].concat();
    OsStr::from_bytes(&name).to_os_string()
}

/// The number of this process's descriptor that a path refers to: `/dev/stdout`, `/dev/fd/63`.
fn own_descriptor(path: &Path) -> Option<OsString> {
    let mut words = path.components();
    if words.next() != Some(Component::RootDir) {
        return None;
    }
    let words: Vec<&OsStr> = words.map(Component::as_os_str).collect();
    let words: Vec<&str> = words
        .iter()
        .map(|word| word.to_str().unwrap_or("/"))
        .collect();
    let number = match words[..] {
        ["dev", "stdout"] => "1",
        ["dev", "stderr"] => "2",
        ["dev", "fd", number] | ["proc", "self", "fd", number] => number,
        _ => return None,
    };
    let all_digits = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    all_digits.then(|| number.into())
}

/// Opens one of this process's descriptors for writing.
fn descriptor(number: &OsStr) -> io::Result<File> {
    // use the standard streams directly: reopening a file would write from its beginning
    match number.as_bytes() {
        b"1" => io::stdout().as_fd().try_clone_to_owned().map(File::from),
        b"2" => io::stderr().as_fd().try_clone_to_owned().map(File::from),
        _ => {
            let path = Path::new("/dev/fd").join(number);
            let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::NOCTTY | OFlags::CLOEXEC;
            let file = File::from(open(path, flags, Mode::empty())?);
            let found = fstat(&file)?;
            match FileType::from_raw_mode(found.st_mode) {
                FileType::RegularFile | FileType::Fifo | FileType::CharacterDevice => Ok(file),
                _ => Err(io::Error::other(format!("is {}", kind(found.st_mode)))),
            }
        }
    }
}

fn is_file(mode: u32) -> bool {
    FileType::from_raw_mode(mode) == FileType::RegularFile
}

fn kind(mode: u32) -> &'static str {
    match FileType::from_raw_mode(mode) {
        FileType::Directory => "a folder",
        FileType::Fifo => "a FIFO",
        FileType::Socket => "a socket",
        FileType::CharacterDevice | FileType::BlockDevice => "a device",
        _ => "no file",
    }
}

/// The permissions that new files of this process lack.
fn umask() -> u32 {
    // umask(2) would change it for other threads while it is read
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    let told = line.and_then(|octal| u32::from_str_radix(octal.trim(), 8).ok());
    told.unwrap_or_else(|| {
        let before = rustix::process::umask(Mode::RWXG | Mode::RWXO);
        rustix::process::umask(before);
        before.as_raw_mode()
    })
}
