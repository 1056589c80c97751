//! Contract of devices, clause by clause, on every device.
//!
//! D1 to D3 are about power cuts and failures, which only the fault device can show. Everything
//! that shows without them is tested on all devices.

use crate::support;

use foxton_sync::shim::{AtomicUsize, Ordering};
use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::Arc;

use foxton_log::device::disk::Damage;
use foxton_log::device::fault::{Call, FaultDevice, Times};
use foxton_log::device::file::{FileDevice, LOCK_FILE};
use foxton_log::device::memory::MemoryDevice;
use foxton_log::device::opened::{MAX_OPEN, OpenedFiles};
use foxton_log::device::{Device, FileLockMode, LockError};

/// A directory that is removed when the test is over.
struct Directory(PathBuf);

impl Directory {
    fn new() -> Self {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("devices-{}-{number}", std::process::id());
        Directory(PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name))
    }

    fn device(&self) -> FileDevice {
        FileDevice::create(&self.0).unwrap()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn on_every_device(test: impl Fn(&dyn Device)) {
    let directory = Directory::new();
    test(&directory.device());
    test(&MemoryDevice::new());
    test(&FaultDevice::new());
}

fn contents(device: &dyn Device, name: &str) -> Vec<u8> {
    let file = device.open(name).unwrap();
    let mut bytes = vec![0xee; 4096];
    let count = file.read_at(&mut bytes, 0).unwrap();
    bytes.truncate(count);
    bytes
}

#[test]
fn d1_written_bytes_are_read_back_by_every_handle() {
    on_every_device(|device| {
        let file = device.create("a").unwrap();
        assert!(file.is_empty().unwrap());
        file.write_at(b"world", 6).unwrap();
        file.write_at(b"hello", 0).unwrap();
        assert_eq!(contents(device, "a"), b"hello\0world");
        file.sync().unwrap();
        assert_eq!(file.len().unwrap(), 11);
        let mut past = [1; 4];
        assert_eq!(file.read_at(&mut past, 9).unwrap(), 2);
        assert_eq!(file.read_at(&mut past, 11).unwrap(), 0);
    });
}

#[test]
fn d1_a_file_is_cut_and_extended_with_zeros() {
    on_every_device(|device| {
        let file = device.create("a").unwrap();
        file.write_at(b"hello", 0).unwrap();
        file.set_len(2).unwrap();
        file.allocate(6).unwrap();
        assert_eq!(contents(device, "a"), b"he\0\0\0\0");
        file.allocate(3).unwrap();
        assert_eq!(file.len().unwrap(), 6, "reserving never cuts");
    });
}

#[test]
fn d2_names_are_seen_at_once() {
    on_every_device(|device| {
        device.create("a").unwrap();
        device.create("b").unwrap();
        device.remove("a").unwrap();
        device.sync_dir().unwrap();
        assert_eq!(device.list().unwrap(), ["b"]);
        assert_eq!(device.open("a").unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(device.remove("a").unwrap_err().kind(), ErrorKind::NotFound);
    });
}

#[test]
fn d3_a_failed_sync_loses_what_a_later_one_does_not_bring_back() {
    let device = FaultDevice::new();
    let file = device.create("a").unwrap();
    device.sync_dir().unwrap();
    device.fail(Call::Sync, 1, Times::Once, ErrorKind::Other);
    file.write_at(b"lost", 0).unwrap();
    file.sync().unwrap_err();
    file.sync().unwrap();
    assert_eq!(contents(&device, "a"), b"lost");
    assert_eq!(contents(&device.crash(Damage::KeepAll, 0), "a"), b"");
}

#[test]
fn d3_a_fault_strikes_at_its_time_once_or_for_ever() {
    let device = FaultDevice::new();
    let file = device.create("a").unwrap();
    device.fail(Call::Write, 2, Times::Once, ErrorKind::StorageFull);
    file.write_at(b"1", 0).unwrap();
    assert_eq!(
        file.write_at(b"2", 0).unwrap_err().kind(),
        ErrorKind::StorageFull
    );
    file.write_at(b"3", 0).unwrap();
    device.fail(Call::Write, 1, Times::ForEver, ErrorKind::Other);
    file.write_at(b"4", 0).unwrap_err();
    file.write_at(b"5", 0).unwrap_err();
    device.heal();
    file.write_at(b"6", 0).unwrap();
    assert_eq!(device.calls(Call::Write), 6);
}

#[test]
fn d4_renaming_onto_a_name_replaces_it() {
    on_every_device(|device| {
        device.create("a").unwrap().write_at(b"new", 0).unwrap();
        device.create("b").unwrap().write_at(b"old", 0).unwrap();
        device.rename("a", "b").unwrap();
        assert_eq!(device.list().unwrap(), ["b"]);
        assert_eq!(contents(device, "b"), b"new");
        assert_eq!(
            device.rename("a", "b").unwrap_err().kind(),
            ErrorKind::NotFound
        );
    });
}

#[test]
fn d5_a_taken_name_cannot_be_created() {
    on_every_device(|device| {
        device.create("a").unwrap();
        assert_eq!(
            device.create("a").unwrap_err().kind(),
            ErrorKind::AlreadyExists
        );
    });
}

#[test]
fn names_that_lead_elsewhere_are_refused() {
    on_every_device(|device| {
        for name in ["", ".", "..", "../a", "a/b", "/a", "a\0", ".hidden", "ä"] {
            let refused = device.create(name).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::InvalidInput, "{name:?}");
        }
    });
}

#[test]
fn d6_a_second_instance_is_refused_and_the_error_names_the_holder() {
    let directory = Directory::new();
    let first = directory.device();
    first.lock().unwrap();
    first.lock().expect("asking again changes nothing");
    let second = directory.device();
    match second.lock() {
        Err(LockError::Held { pid, .. }) => assert_eq!(pid, Some(std::process::id())),
        other => panic!("{other:?}"),
    }
    drop(first);
    second.lock().expect("the lock ends with its instance");
}

#[test]
fn d6_another_process_is_refused_and_the_error_names_the_holder() {
    // The program `flock` holds the lock while it runs `sleep`; without it there is no other
    // process to test with.
    let directory = Directory::new();
    let device = directory.device();
    let lock = directory.0.join(LOCK_FILE);
    std::fs::write(&lock, "4242\n").unwrap();
    let holder = std::process::Command::new("flock")
        .arg(&lock)
        .args(["sleep", "60"])
        .spawn();
    let Ok(mut holder) = holder else {
        println!("not shown here: there is no program `flock`");
        return;
    };
    let mut refused = Ok(());
    let patience = std::time::Instant::now() + std::time::Duration::from_secs(50);
    while std::time::Instant::now() < patience {
        // A new instance each time, so that its lock ends at once.
        refused = directory.device().lock();
        if refused.is_err() {
            break;
        }
        std::fs::write(&lock, "4242\n").unwrap();
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let refused = refused.unwrap_err().to_string();
    holder.kill().unwrap();
    holder.wait().unwrap();
    assert!(
        refused.contains("already open in another process (process 4242"),
        "{refused}"
    );
    drop(device);
}

#[test]
fn d7_a_file_has_one_exclusive_lock_or_several_shared_ones() {
    use FileLockMode::{Exclusive, Shared};
    on_every_device(|device| {
        let lock = |mode| device.try_lock_file("a", mode).unwrap();
        let refused = device.try_lock_file("a", Shared).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::NotFound);
        device.create("a").unwrap();
        let (one, two) = (lock(Shared), lock(Shared));
        assert!(one.is_some() && two.is_some() && lock(Exclusive).is_none());
        drop(one);
        assert!(lock(Exclusive).is_none(), "one is left");
        drop(two);
        let alone = lock(Exclusive);
        assert!(alone.is_some() && lock(Exclusive).is_none() && lock(Shared).is_none());
        device.open("a").unwrap().write_at(b"b", 0).unwrap();
        drop(alone);
        assert!(lock(Shared).is_some());
    });
    let directory = Directory::new();
    let (one, other) = (directory.device(), directory.device());
    one.create("a").unwrap();
    let lock = one.try_lock_file("a", Exclusive).unwrap();
    assert!(lock.is_some() && other.try_lock_file("a", Shared).unwrap().is_none());
}

#[test]
fn d8_an_open_file_can_be_read_after_its_name_has_gone() {
    on_every_device(|device| {
        for number in 0..2 * MAX_OPEN {
            let file = device.create(&format!("a{number}")).unwrap();
            file.write_at(b"old", 0).unwrap();
        }
        let mut opened = OpenedFiles::new(device, None);
        for number in 0..MAX_OPEN {
            assert!(opened.keep(&format!("a{number}")).unwrap());
        }
        assert!(!opened.keep("b").unwrap());
        for number in 0..MAX_OPEN {
            device
                .rename(&format!("a{}", number + MAX_OPEN), &format!("a{number}"))
                .unwrap();
            device.remove(&format!("a{number}")).unwrap();
            assert_eq!(contents(&opened, &format!("a{number}")), b"old");
        }
        assert_eq!(opened.list().unwrap().len(), MAX_OPEN);
    });
}

#[test]
fn a_lock_is_held_as_long_as_a_file_is_not_open() {
    on_every_device(|device| {
        let name = |number| format!("a{number}");
        for number in 0..=MAX_OPEN {
            device.create(&name(number)).unwrap();
        }
        for (files, is_held) in [(MAX_OPEN, false), (MAX_OPEN + 1, true)] {
            let lock = device
                .try_lock_file(&name(0), FileLockMode::Shared)
                .unwrap();
            let mut opened = OpenedFiles::new(device, lock);
            for number in 0..files {
                assert!(opened.keep(&name(number)).unwrap());
            }
            opened.finish();
            let alone = device
                .try_lock_file(&name(0), FileLockMode::Exclusive)
                .unwrap();
            assert_eq!(alone.is_none(), is_held, "{files}");
            assert_eq!(contents(&opened, &name(files - 1)), b"");
        }
    });
}

#[cfg(unix)]
#[test]
fn files_are_for_their_owner_alone() {
    use std::os::unix::fs::PermissionsExt;
    let directory = Directory::new();
    let device = directory.device();
    device.lock().unwrap();
    device.create("a").unwrap();
    let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode();
    assert_eq!(mode(&directory.0) & 0o777, 0o700);
    assert_eq!(mode(&directory.0.join("a")) & 0o777, 0o600);
    assert_eq!(mode(&directory.0.join(LOCK_FILE)) & 0o777, 0o600);
}

#[cfg(unix)]
#[test]
fn a_link_is_not_followed() {
    let directory = Directory::new();
    let device = directory.device();
    let outside = directory.0.with_extension("outside");
    std::fs::write(&outside, "secret").unwrap();
    std::os::unix::fs::symlink(&outside, directory.0.join("a")).unwrap();
    let opened = device.open("a");
    std::fs::remove_file(&outside).unwrap();
    assert!(opened.is_err());
}

/// Opening a pipe to read it would wait for a writer.
#[cfg(target_os = "linux")]
#[test]
fn a_pipe_in_the_place_of_a_file_is_not_waited_for() {
    use rustix::fs::{CWD, FileType, Mode, mknodat};

    let directory = Directory::new();
    let device = directory.device();
    for name in ["a", "lock"] {
        mknodat(CWD, directory.0.join(name), FileType::Fifo, Mode::RWXU, 0).unwrap();
    }
    for refused in [
        device.open("a").unwrap_err().to_string(),
        device.lock_shared().unwrap_err().to_string(),
        device.lock().unwrap_err().to_string(),
    ] {
        assert!(refused.contains("a pipe"), "{refused}");
    }
}

#[cfg(unix)]
#[test]
fn the_error_names_what_has_the_place_of_a_file() {
    let directory = Directory::new();
    let device = directory.device();
    std::fs::create_dir(directory.0.join("a")).unwrap();
    std::os::unix::fs::symlink("/dev/zero", directory.0.join("b")).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(directory.0.join("c")).unwrap();
    for (name, what) in [
        ("a", "a directory"),
        ("b", "a symbolic link"),
        ("c", "a socket"),
    ] {
        let refused = device.open(name).unwrap_err().to_string();
        assert!(refused.contains(what), "{refused}");
    }
}

#[test]
fn a_directory_that_is_not_there_is_an_error() {
    let directory = Directory::new();
    assert_eq!(
        FileDevice::open(&directory.0).unwrap_err().kind(),
        ErrorKind::NotFound
    );
    let nested = directory.0.join("a").join("b");
    assert_eq!(
        FileDevice::create(nested).unwrap_err().kind(),
        ErrorKind::NotFound
    );
}

#[test]
fn a_log_on_a_real_directory_is_found_again_and_held_meanwhile() {
    let directory = Directory::new();
    let worker = foxton_sync::worker::Workers::new().worker();
    let (log, ..) = support::open(Arc::new(directory.device())).unwrap();
    let refused = support::open(Arc::new(directory.device()))
        .unwrap_err()
        .to_string();
    assert!(
        refused.contains("already open in this process"),
        "{refused}"
    );
    for number in 0..200_u32 {
        let end = log
            .insert(&worker, 1, &[&number.to_le_bytes(), &[7; 100]])
            .unwrap();
        if number % 50 == 0 {
            log.wait_durable(&worker, end).unwrap();
        }
    }
    log.close(&worker).unwrap();
    drop(log);
    let (log, opened, found) = support::open(Arc::new(directory.device())).unwrap();
    assert_eq!(found.len(), 200);
    assert!(
        opened
            .to_string()
            .contains("200 records in 7 segments up to LSN"),
        "{opened}"
    );
    drop(log);
}

/// Aligned calls go past the page cache, others do not, and both see the same bytes.
#[cfg(target_os = "linux")]
#[test]
fn direct_calls_and_others_see_the_same_bytes() {
    const BLOCK: usize = foxton_log::device::DIRECT_ALIGNMENT;
    let directory = Directory::new();
    let device = directory.device();
    assert_eq!(
        device.open_direct("a").unwrap_err().kind(),
        ErrorKind::NotFound
    );
    let usual = device.create("a").unwrap();
    let file = device.open_direct("a").unwrap().expect("it can");
    let mut memory = vec![0; 4 * BLOCK];
    let start = memory.as_ptr().align_offset(BLOCK);
    let blocks = &mut memory[start..start + 2 * BLOCK];
    blocks.fill(7);
    file.write_at(blocks, 0).unwrap();
    file.write_at(b"header", 4090).unwrap();
    usual.write_at(b"!", 5000).unwrap();
    file.sync().unwrap();
    for file in [&file, &usual] {
        blocks.fill(0);
        assert_eq!(file.read_at(blocks, 0).unwrap(), 2 * BLOCK);
        assert_eq!(&blocks[4088..4098], b"\x07\x07header\x07\x07");
        assert_eq!(&blocks[4999..5002], b"\x07!\x07");
        // At the end of the file a read is short.
        assert_eq!(file.read_at(blocks, BLOCK as u64).unwrap(), BLOCK);
        assert_eq!(file.read_at(&mut blocks[1..], 1).unwrap(), 2 * BLOCK - 1);
    }
    assert_eq!(
        MemoryDevice::new().open_direct("a").unwrap().map(|_| ()),
        None
    );
}
