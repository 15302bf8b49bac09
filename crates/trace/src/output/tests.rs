//! Tests of the file writer, and attacks on it.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use super::*;

const NOBODY: u32 = 65534;

fn put(path: &Path, content: &[u8]) -> Result<(), TraceError> {
    write_beside(path, |file| {
        file.write_all(content).map_err(|e| e.to_string())
    })
}

fn entries(folder: &Path) -> usize {
    fs::read_dir(folder).unwrap().count()
}

fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        println!("skipped, only root can be attacked so");
    }
    root
}

#[test]
fn a_write_that_fails_leaves_nothing_and_spares_what_was_there() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.parquet");
    put(&path, b"old").unwrap();
    let error = write_beside(&path, |file| {
        file.write_all(b"ne").map_err(|e| e.to_string())?;
        Err::<(), _>("no space left on device".to_string())
    });
    assert!(error.unwrap_err().to_string().contains("no space left"));
    assert_eq!(fs::read(&path).unwrap(), b"old");
    assert_eq!(entries(folder.path()), 1);
}

#[test]
fn what_a_panic_interrupts_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.parquet");
    let _quiet = std::panic::catch_unwind(|| {
        write_beside(&path, |_| -> Result<(), String> { panic!("on purpose") })
    });
    assert_eq!(entries(folder.path()), 0);
}

#[test]
fn links_at_the_final_name_and_at_names_that_can_be_foreseen_are_not_followed() {
    let folder = tempfile::tempdir().unwrap();
    let other = tempfile::tempdir().unwrap();
    let precious = other.path().join("precious");
    fs::write(&precious, b"precious").unwrap();
    let path = folder.path().join("log.parquet");
    let pid = std::process::id();
    for name in [format!("log.parquet.{pid}.part"), "log.parquet".into()] {
        symlink(&precious, folder.path().join(name)).unwrap();
    }
    put(&path, b"log").unwrap();
    assert_eq!(fs::read(&precious).unwrap(), b"precious");
    assert_eq!(fs::symlink_metadata(&path).unwrap().len(), 3);
}

#[test]
fn a_part_file_is_its_owners_alone_and_the_file_as_any_new_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log.parquet");
    let name = "x".repeat(255); // the longest there is
    for path in [&path, &folder.path().join(name)] {
        let part_mode = write_beside(path, |file| Ok(file.metadata().unwrap().mode())).unwrap();
        assert_eq!(part_mode & 0o7777, 0o600);
    }
    let usual = folder.path().join("usual");
    fs::write(&usual, b"").unwrap();
    let mode = |path| fs::metadata(path).unwrap().mode();
    assert_eq!(mode(&path), mode(&usual));
}

#[test]
fn a_secret_is_its_owners_alone_and_replaces_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("key");
    write_new_secret(&path, b"one").unwrap();
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o600);
    let link = folder.path().join("link");
    symlink(folder.path().join("elsewhere"), &link).unwrap();
    for path in [&path, &link] {
        let error = write_new_secret(path, b"two").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
    }
    assert_eq!(
        (fs::read(&path).unwrap(), entries(folder.path())),
        (b"one".into(), 2)
    );
}

#[test]
fn what_is_no_file_is_written_to_or_refused_but_never_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.unwrap().success());
    let reader = thread::spawn({
        let pipe = pipe.clone();
        move || fs::read(pipe).unwrap()
    });
    check_writable(&pipe, None).unwrap();
    put(&pipe, b"through").unwrap();
    assert_eq!(reader.join().unwrap(), b"through");
    remove_written(&pipe);
    assert!(fs::symlink_metadata(&pipe).unwrap().file_type().is_fifo());
    put(Path::new("/dev/null"), b"away").unwrap();
    remove_written(Path::new("/dev/null"));
    let null = fs::symlink_metadata("/dev/null").unwrap();
    assert!(null.file_type().is_char_device());

    let link = folder.path().join("link");
    symlink("/dev/null", &link).unwrap();
    let sub = folder.path().join("folder");
    fs::create_dir(&sub).unwrap();
    let missing = folder.path().join("no").join("file");
    for (path, message) in [
        (&link, "is a link to a device, expected"),
        (&sub, "is a folder, expected the name of a file"),
        (&missing, "cannot be written: there is no folder"),
    ] {
        let checked = check_writable(path, None).unwrap_err().to_string();
        assert!(checked.contains(message), "{checked}");
        assert_eq!(put(path, b"x").unwrap_err().to_string(), checked);
    }
    assert_eq!(entries(folder.path()), 3);
}

#[test]
fn paths_of_this_processs_descriptors_are_known() {
    let number = |path: &str| own_descriptor(Path::new(path));
    for (path, known) in [
        ("/dev/stdout", "1"),
        ("/dev/./stderr", "2"),
        ("//dev/fd/63", "63"),
        ("/proc/self/fd/1", "1"),
    ] {
        assert_eq!(number(path), Some(known.into()), "{path}");
    }
    for path in [
        "stdout",
        "/dev/fd/",
        "/dev/fd/x",
        "/dev/fd/1/2",
        "/tmp/dev/stdout",
    ] {
        assert_eq!(number(path), None, "{path}");
    }
}

#[test]
#[cfg(target_os = "linux")]
fn root_does_for_a_user_only_what_they_may_do() {
    if !is_root() {
        return;
    }
    let user = Some((NOBODY, NOBODY));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    for rights in [0o755, 0o1777] {
        // the user may write in the second, but not replace root's file there
        fs::set_permissions(folder.path(), PermissionsExt::from_mode(rights)).unwrap();
        fs::write(&path, b"root's").unwrap();
        let error = write_beside_for(user, &path, |_| Ok(()))
            .unwrap_err()
            .to_string();
        assert!(error.contains("cannot be written"), "{error}");
        assert_eq!(fs::read(&path).unwrap(), b"root's");
        assert_eq!(entries(folder.path()), 1);
    }
    fs::remove_file(&path).unwrap();
    write_beside_for(user, &path, |_| Ok(())).unwrap();
    let made = fs::metadata(&path).unwrap();
    assert_eq!((made.uid(), made.gid()), (NOBODY, NOBODY));
    // the thread has its own permissions again
    assert!(is_root() && fs::write(folder.path().join("mine"), b"").is_ok());
}

#[test]
#[cfg(target_os = "linux")]
fn whoever_exchanges_entries_of_the_folder_meanwhile_gets_no_file_of_roots() {
    if !is_root() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let precious = place.path().join("precious");
    fs::write(&precious, b"precious").unwrap();
    fs::set_permissions(&precious, PermissionsExt::from_mode(0o600)).unwrap();
    let folder = place.path().join("theirs");
    fs::create_dir(&folder).unwrap();
    std::os::unix::fs::chown(&folder, Some(NOBODY), Some(NOBODY)).unwrap();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        // replace any entry of the folder by a link, as fast as possible
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                for entry in fs::read_dir(&folder).unwrap().flatten() {
                    let _ = fs::remove_file(entry.path());
                    let _ = symlink(&precious, entry.path());
                }
            }
        });
        for round in 0..300 {
            let path = folder.join(format!("log{}", round % 3));
            let user = (round % 2 == 0).then_some((NOBODY, NOBODY));
            let _ = write_beside_for(user, &path, |file| {
                file.write_all(b"log").map_err(|e| e.to_string())
            });
        }
        stop.store(true, Ordering::Relaxed);
    });
    let left = fs::metadata(&precious).unwrap();
    assert_eq!((left.uid(), left.mode() & 0o7777), (0, 0o600));
    assert_eq!(fs::read(&precious).unwrap(), b"precious");
}
