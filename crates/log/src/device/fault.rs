//! Directory in memory that fails, loses, tears and reorders on request.
//!
//! It works like a disk behind a page cache: a reader sees what was written last, durable or not.
//! Besides, every call is fed to a `Disk`. So the directories that a power cut could leave can be
//! built at any moment, and for every moment of a recording.
//!
//! Any call can be made to fail at its n-th time, once or from then on. A failed write has written
//! its first half. A failed sync has lost what it should have made durable: the bytes stay visible
//! until the end of the device and never reach the disk. Real systems do the same.
//!
//! ```
//! use foxton_log::device::{Device, disk::Damage, fault::{Call, FaultDevice, Times}};
//!
//! let device = FaultDevice::new();
//! let file = device.create("a")?;
//! file.write_at(b"safe", 0)?;
//! file.sync()?;
//! device.sync_dir()?;
//!
//! device.fail(Call::Sync, 1, Times::Once, std::io::ErrorKind::Other);
//! file.write_at(b"lost", 4)?;
//! assert!(file.sync().is_err());
//! file.sync()?;
//! assert_eq!(file.len()?, 8, "it is still seen");
//! assert_eq!(device.crash(Damage::KeepAll, 0).open("a")?.len()?, 4, "and not on the disk");
//! # Ok::<(), std::io::Error>(())
//! ```

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::disk::{Damage, Disk, Event, FileNumber};
use super::memory::{Contents, MemoryDevice, MemoryLocks};
use super::{Device, DeviceFile, FileLock, FileLockMode, LockError, check_name};

/// A kind of call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Call {
    /// [`Device::create`].
    Create,
    /// [`Device::open`].
    Open,
    /// [`Device::list`].
    List,
    /// [`Device::rename`].
    Rename,
    /// [`Device::remove`].
    Remove,
    /// [`Device::sync_dir`].
    SyncDir,
    /// [`DeviceFile::read_at`].
    Read,
    /// [`DeviceFile::write_at`].
    Write,
    /// [`DeviceFile::sync`].
    Sync,
    /// [`DeviceFile::set_len`].
    SetLen,
    /// [`DeviceFile::allocate`].
    Allocate,
}

impl Call {
    /// All of them.
    pub const ALL: [Call; 11] = [
        Call::Create,
        Call::Open,
        Call::List,
        Call::Rename,
        Call::Remove,
        Call::SyncDir,
        Call::Read,
        Call::Write,
        Call::Sync,
        Call::SetLen,
        Call::Allocate,
    ];
}

/// How often a call fails once it has begun to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Times {
    /// One call fails; those after it are as before.
    Once,
    /// That call and all after it fail.
    ForEver,
}

#[derive(Debug)]
struct PlannedFault {
    call: Call,
    /// Number of calls that still succeed.
    before: u64,
    times: Times,
    kind: io::ErrorKind,
    spent: bool,
}

#[derive(Debug, Default)]
struct FaultState {
    names: BTreeMap<String, FileNumber>,
    files: Vec<Contents>,
    disk: Disk,
    recording: Option<Recording>,
    faults: Vec<PlannedFault>,
    /// By position in `Call::ALL`.
    calls: [u64; Call::ALL.len()],
    sync_time: Duration,
}

impl FaultState {
    fn feed(&mut self, event: Event) {
        self.disk.feed(&event);
        if let Some(recording) = &mut self.recording {
            recording.events.push(event);
        }
    }

    /// Counts a call, and fails it if that was requested.
    fn enter(&mut self, call: Call) -> io::Result<()> {
        self.calls[call as usize] += 1;
        for fault in self
            .faults
            .iter_mut()
            .filter(|fault| fault.call == call && !fault.spent)
        {
            if fault.before > 0 {
                fault.before -= 1;
                continue;
            }
            fault.spent = fault.times == Times::Once;
            return Err(fault.kind.into());
        }
        Ok(())
    }

    fn number(&self, name: &str) -> io::Result<FileNumber> {
        self.names
            .get(name)
            .copied()
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

/// A directory in memory that fails on request. Clones are one directory.
#[derive(Debug, Clone, Default)]
pub struct FaultDevice {
    state: Arc<Mutex<FaultState>>,
    locks: MemoryLocks,
}

impl FaultDevice {
    /// Returns an empty directory without faults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns a directory in which everything in `device` is durable.
    pub fn holding(device: &MemoryDevice) -> Self {
        let (names, files): (Vec<_>, Vec<_>) = device.files().into_iter().unzip();
        let names = names.into_iter().zip(0..).collect();
        let state = FaultState {
            names,
            files,
            disk: Disk::holding(device),
            ..FaultState::default()
        };
        FaultDevice {
            state: Arc::new(Mutex::new(state)),
            locks: MemoryLocks::default(),
        }
    }

    /// Makes `call` fail with `kind` at its `nth` time from now, counted from 1.
    pub fn fail(&self, call: Call, nth: u64, times: Times, kind: io::ErrorKind) {
        let before = nth.saturating_sub(1);
        self.state().faults.push(PlannedFault {
            call,
            before,
            times,
            kind,
            spent: false,
        });
    }

    /// Forgets all faults that were requested.
    pub fn heal(&self) {
        self.state().faults.clear();
    }

    /// Number of times `call` was made.
    pub fn calls(&self, call: Call) -> u64 {
        self.state().calls[call as usize]
    }

    /// Makes every later sync of a file take this long.
    pub fn slow_sync(&self, time: Duration) {
        self.state().sync_time = time;
    }

    /// Records every later call, so that the past can be cut anywhere.
    pub fn record(&self) {
        let state = &mut *self.state();
        state.recording = Some(Recording {
            start: state.disk.clone(),
            events: Vec::new(),
        });
    }

    /// Number of changes recorded so far.
    pub fn recorded(&self) -> usize {
        self.state().recording.as_ref().map_or(0, Recording::len)
    }

    /// Ends recording and returns what was recorded.
    pub fn recording(&self) -> Option<Recording> {
        self.state().recording.take()
    }

    /// Returns the directory that a power cut now leaves behind.
    pub fn crash(&self, damage: Damage, seed: u64) -> MemoryDevice {
        self.state().disk.crash(damage, seed)
    }

    fn state(&self) -> MutexGuard<'_, FaultState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn file(&self, number: FileNumber) -> Arc<dyn DeviceFile> {
        Arc::new(FaultFile {
            device: self.clone(),
            number,
        })
    }
}

/// Every change made to a directory while it was recorded.
#[derive(Debug, Clone)]
pub struct Recording {
    start: Disk,
    events: Vec<Event>,
}

impl Recording {
    /// Number of changes. The directory can be cut before the first, and after each.
    pub fn len(&self) -> usize {
        self.events.len()
    }

    /// True if there were no changes.
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// Returns the disk before the first change, and after each.
    pub fn disks(&self) -> impl Iterator<Item = Disk> + '_ {
        let mut disk = self.start.clone();
        let mut events = self.events.iter();
        let mut next = Some(disk.clone());
        std::iter::from_fn(move || {
            let now = next.take()?;
            next = events.next().map(|event| {
                disk.feed(event);
                disk.clone()
            });
            Some(now)
        })
    }
}

impl Device for FaultDevice {
    fn lock(&self) -> Result<(), LockError> {
        // No other device can name this directory.
        Ok(())
    }

    fn try_lock_file(&self, name: &str, mode: FileLockMode) -> io::Result<Option<FileLock>> {
        self.state().number(name)?;
        Ok(self.locks.try_lock(name, mode))
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn DeviceFile>> {
        check_name(name)?;
        let state = &mut *self.state();
        state.enter(Call::Create)?;
        if state.names.contains_key(name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let number = state.files.len();
        state.files.push(Contents::default());
        state.names.insert(name.to_owned(), number);
        state.feed(Event::Create(name.to_owned()));
        Ok(self.file(number))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn DeviceFile>> {
        let state = &mut *self.state();
        state.enter(Call::Open)?;
        Ok(self.file(state.number(name)?))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let state = &mut *self.state();
        state.enter(Call::List)?;
        Ok(state.names.keys().cloned().collect())
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        check_name(to)?;
        let state = &mut *self.state();
        state.enter(Call::Rename)?;
        let number = state.number(from)?;
        state.names.remove(from);
        state.names.insert(to.to_owned(), number);
        state.feed(Event::Rename(from.to_owned(), to.to_owned()));
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let state = &mut *self.state();
        state.enter(Call::Remove)?;
        state.number(name)?;
        state.names.remove(name);
        state.feed(Event::Remove(name.to_owned()));
        Ok(())
    }

    fn sync_dir(&self) -> io::Result<()> {
        let state = &mut *self.state();
        state.enter(Call::SyncDir)?;
        state.feed(Event::SyncDir);
        Ok(())
    }
}

#[derive(Debug)]
struct FaultFile {
    device: FaultDevice,
    number: FileNumber,
}

impl DeviceFile for FaultFile {
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        let state = &mut *self.device.state();
        state.enter(Call::Read)?;
        Ok(state.files[self.number].read(bytes, offset))
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let state = &mut *self.device.state();
        let outcome = state.enter(Call::Write);
        let bytes = if outcome.is_ok() {
            bytes
        } else {
            &bytes[..bytes.len() / 2]
        };
        state.files[self.number].write(bytes, offset);
        state.feed(Event::Write(self.number, offset, bytes.into()));
        outcome
    }

    fn sync(&self) -> io::Result<()> {
        // A sync covers what came before it began, however long it takes, and whether or not it
        // succeeds.
        let (outcome, before, time) = {
            let state = &mut *self.device.state();
            (
                state.enter(Call::Sync),
                state.disk.events(),
                state.sync_time,
            )
        };
        if !time.is_zero() {
            std::thread::sleep(time);
        }
        let event = match &outcome {
            Ok(()) => Event::Sync(self.number, before),
            Err(_) => Event::Lose(self.number, before),
        };
        self.device.state().feed(event);
        outcome
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        let state = &mut *self.device.state();
        state.enter(Call::SetLen)?;
        state.files[self.number].set_len(length);
        state.feed(Event::SetLen(self.number, length));
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.device.state().files[self.number].len())
    }

    fn allocate(&self, length: u64) -> io::Result<()> {
        let state = &mut *self.device.state();
        state.enter(Call::Allocate)?;
        if state.files[self.number].len() < length {
            state.files[self.number].set_len(length);
            state.feed(Event::SetLen(self.number, length));
        }
        Ok(())
    }
}
