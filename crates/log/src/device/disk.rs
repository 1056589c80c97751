//! Model of a disk: what it remembers, and every way in which a power cut leaves it.
//!
//! A [`Disk`](crate::device::disk::Disk) is fed the calls of a program. It keeps durable changes
//! apart from changes that are not, which it keeps in order. From both it builds the directory that
//! a power cut at this moment could leave behind. It does no input or output itself.
//!
//! # What is assumed of a disk, and what is not
//!
//! * Writes are cut at sectors of 512 bytes.
//! * Unsynced writes may be lost or kept, sector by sector, in any combination and any order.
//! * A sector that is being written may turn into garbage.
//! * The length of a file may be kept without its bytes.
//! * Names follow the same rules.
//! * Bytes that the program was not writing stay as they are: a torn write stays inside its own
//!   range. The exception is `Damage::Misdirected`.
//!
//! # Invariants
//!
//! * I1 Synced changes are in every image, except where a later unsynced call changes the same
//!   bytes.
//! * I2 The same calls, damage and seed give the same image.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::memory::{Contents, MemoryDevice};

/// Bytes that a disk writes in one piece.
pub const SECTOR_BYTES: u64 = 512;

/// Damage that a power cut does to the calls that were not synced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Damage {
    /// All calls are lost.
    DropAll,
    /// All calls are kept.
    KeepAll,
    /// A prefix of the calls is kept.
    Prefix,
    /// Some calls are kept, in order.
    Subset,
    /// A prefix of the calls is kept, and the first sectors of the next write.
    Torn,
    /// Like `Torn`, and the sector after those is garbage.
    Garbage,
    /// Some calls are kept, and of each write any sectors, in any order.
    Reordered,
    /// Files have the length that they would have, but the bytes are zero.
    SizeOnly,
    /// All calls are kept, and one bit in one of the writes is wrong.
    BitFlip,
    /// All calls are kept, but one of the writes went somewhere else.
    Misdirected,
}

impl Damage {
    /// All kinds of damage.
    pub const ALL: [Damage; 10] = [
        Damage::DropAll,
        Damage::KeepAll,
        Damage::Prefix,
        Damage::Subset,
        Damage::Torn,
        Damage::Garbage,
        Damage::Reordered,
        Damage::SizeOnly,
        Damage::BitFlip,
        Damage::Misdirected,
    ];

    /// True if durable bytes may be harmed that are not being written. A program that keeps one
    /// copy can notice this, but not repair it.
    pub const fn harms_durable(self) -> bool {
        matches!(self, Damage::Misdirected)
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// A file, whatever its name is: number in the order of creation, from 0.
pub type FileNumber = usize;

/// A call that changed something, or made changes durable.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Event {
    /// A file was created under this name; it has the next file number.
    Create(String),
    /// A file was renamed.
    Rename(String, String),
    /// A name was removed.
    Remove(String),
    /// All earlier changes of names became durable.
    SyncDir,
    /// Bytes were written to a file at an offset.
    Write(FileNumber, u64, Arc<[u8]>),
    /// A file was cut or extended.
    SetLen(FileNumber, u64),
    /// The changes of a file that came before event number `.1` became durable.
    Sync(FileNumber, usize),
    /// The system gave up writing the changes of a file that came before event number `.1`: they
    /// are visible, but never get to the disk.
    Lose(FileNumber, usize),
}

#[derive(Debug, Clone)]
enum FileChange {
    Write(u64, Arc<[u8]>),
    SetLen(u64),
}

impl FileChange {
    fn apply(&self, contents: &mut Contents) {
        match self {
            FileChange::Write(offset, bytes) => contents.write(bytes, *offset),
            FileChange::SetLen(length) => contents.set_len(*length),
        }
    }
}

#[derive(Debug, Clone)]
enum NameChange {
    Create(String, FileNumber),
    Rename(String, String),
    Remove(String),
}

impl NameChange {
    fn apply(&self, names: &mut BTreeMap<String, FileNumber>) {
        match self {
            NameChange::Create(name, file) => {
                names.insert(name.clone(), *file);
            }
            NameChange::Rename(from, to) => {
                if let Some(file) = names.remove(from) {
                    names.insert(to.clone(), file);
                }
            }
            NameChange::Remove(name) => {
                names.remove(name);
            }
        }
    }
}

#[derive(Debug, Clone, Default)]
struct FileState {
    durable: Contents,
    /// Each with the number of its event.
    unsynced: Vec<(usize, FileChange)>,
}

/// Durable changes, and changes that are not durable yet.
#[derive(Debug, Clone, Default)]
pub struct Disk {
    names: BTreeMap<String, FileNumber>,
    unsynced_names: Vec<(usize, NameChange)>,
    files: Vec<FileState>,
    events: usize,
}

/// An unsynced change, of a file or of a name.
#[derive(Debug, Clone)]
enum UnsyncedChange {
    File(FileNumber, FileChange),
    Name(NameChange),
}

impl Disk {
    /// Returns an empty directory.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns a directory in which everything in `device` is durable.
    pub fn holding(device: &MemoryDevice) -> Self {
        let mut disk = Disk::default();
        for (name, contents) in device.files() {
            disk.names.insert(name, disk.files.len());
            disk.files.push(FileState {
                durable: contents,
                unsynced: Vec::new(),
            });
        }
        disk
    }

    /// Number of events that were fed.
    pub fn events(&self) -> usize {
        self.events
    }

    /// Records a call.
    ///
    /// # Panics
    ///
    /// If the call is about a file that was never created.
    pub fn feed(&mut self, event: &Event) {
        let number = self.events;
        self.events += 1;
        match event {
            Event::Create(name) => {
                self.files.push(FileState::default());
                let naming = NameChange::Create(name.clone(), self.files.len() - 1);
                self.unsynced_names.push((number, naming));
            }
            Event::Rename(from, to) => {
                self.unsynced_names
                    .push((number, NameChange::Rename(from.clone(), to.clone())));
            }
            Event::Remove(name) => {
                self.unsynced_names
                    .push((number, NameChange::Remove(name.clone())));
            }
            Event::SyncDir => {
                for (_, naming) in self.unsynced_names.drain(..) {
                    naming.apply(&mut self.names);
                }
            }
            Event::Write(file, offset, bytes) => {
                let change = FileChange::Write(*offset, bytes.clone());
                self.files[*file].unsynced.push((number, change));
            }
            Event::SetLen(file, length) => {
                self.files[*file]
                    .unsynced
                    .push((number, FileChange::SetLen(*length)));
            }
            Event::Sync(file, before) => {
                let file = &mut self.files[*file];
                for (_, change) in file
                    .unsynced
                    .extract_if(.., |(number, _)| *number < *before)
                {
                    change.apply(&mut file.durable);
                }
            }
            Event::Lose(file, before) => {
                let unsynced = &mut self.files[*file].unsynced;
                unsynced.retain(|(number, _)| number >= before);
            }
        }
    }

    /// Returns the directory that a power cut now leaves behind.
    pub fn crash(&self, damage: Damage, seed: u64) -> MemoryDevice {
        let mut random = SplitMix(seed);
        let steps = self.damaged_steps(damage, &mut random);
        let mut names = self.names.clone();
        let mut files: BTreeMap<FileNumber, Contents> = BTreeMap::new();
        let durable = |file: FileNumber| self.files[file].durable.clone();
        for step in &steps {
            match step {
                UnsyncedChange::Name(naming) => naming.apply(&mut names),
                UnsyncedChange::File(file, change) => {
                    change.apply(files.entry(*file).or_insert_with(|| durable(*file)));
                }
            }
        }
        MemoryDevice::with_files(names.into_iter().map(|(name, file)| {
            (
                name,
                files.get(&file).cloned().unwrap_or_else(|| durable(file)),
            )
        }))
    }

    /// Returns the unsynced changes in order.
    fn steps(&self) -> Vec<UnsyncedChange> {
        let mut steps: Vec<(usize, UnsyncedChange)> = Vec::new();
        for (file, contents) in self.files.iter().enumerate() {
            let changes = contents.unsynced.iter();
            steps.extend(
                changes.map(|(at, change)| (*at, UnsyncedChange::File(file, change.clone()))),
            );
        }
        let namings = self.unsynced_names.iter();
        steps.extend(namings.map(|(at, naming)| (*at, UnsyncedChange::Name(naming.clone()))));
        steps.sort_by_key(|(at, _)| *at);
        steps.into_iter().map(|(_, step)| step).collect()
    }

    /// Returns the unsynced changes that survive a power cut, in the order in which they take
    /// effect.
    fn damaged_steps(&self, damage: Damage, random: &mut SplitMix) -> Vec<UnsyncedChange> {
        let mut steps = self.steps();
        match damage {
            Damage::DropAll => steps.clear(),
            Damage::KeepAll => {}
            Damage::Prefix => steps.truncate(random.up_to(steps.len())),
            Damage::Subset => steps.retain(|_| random.coin()),
            Damage::Torn | Damage::Garbage => tear(&mut steps, damage, random),
            Damage::Reordered => steps = reorder(steps, random),
            Damage::SizeOnly => keep_sizes(&mut steps, &self.files),
            Damage::BitFlip => flip(&mut steps, random),
            Damage::Misdirected => misdirect(&mut steps, self.files.len(), random),
        }
        steps
    }
}

/// Cuts a write into the sectors that it touches.
fn sectors(offset: u64, bytes: &Arc<[u8]>) -> Vec<(u64, Arc<[u8]>)> {
    let mut pieces = Vec::new();
    let mut done = 0;
    while done < bytes.len() {
        let at = offset + done as u64;
        let room = (SECTOR_BYTES - at % SECTOR_BYTES) as usize;
        let length = room.min(bytes.len() - done);
        pieces.push((at, bytes[done..done + length].into()));
        done += length;
    }
    pieces
}

/// Keeps a prefix, whose last write loses its last sectors.
fn tear(steps: &mut Vec<UnsyncedChange>, damage: Damage, random: &mut SplitMix) {
    steps.truncate(random.up_to(steps.len()));
    let Some(UnsyncedChange::File(file, FileChange::Write(offset, bytes))) = steps.last().cloned()
    else {
        return;
    };
    steps.pop();
    let pieces = sectors(offset, &bytes);
    // At least the last sector is lost, or turned into garbage.
    let kept = random.up_to(pieces.len().saturating_sub(1));
    let write = |(at, bytes)| UnsyncedChange::File(file, FileChange::Write(at, bytes));
    steps.extend(pieces[..kept].iter().cloned().map(write));
    if let (Damage::Garbage, Some((at, lost))) = (damage, pieces.get(kept)) {
        let garbage = lost.iter().map(|_| random.next() as u8).collect();
        steps.push(write((*at, garbage)));
    }
}

/// Keeps any sectors of any changes, in any order. Names stay in order among themselves, because
/// some orders of names mean nothing.
fn reorder(steps: Vec<UnsyncedChange>, random: &mut SplitMix) -> Vec<UnsyncedChange> {
    let mut names = Vec::new();
    let mut pieces = Vec::new();
    for step in steps {
        match step {
            UnsyncedChange::Name(_) if random.coin() => names.push(step),
            UnsyncedChange::Name(_) => {}
            UnsyncedChange::File(file, FileChange::Write(offset, bytes)) => {
                let sectors = sectors(offset, &bytes).into_iter();
                let write = |(at, bytes)| UnsyncedChange::File(file, FileChange::Write(at, bytes));
                pieces.extend(sectors.map(write).filter(|_| random.coin()));
            }
            UnsyncedChange::File(..) if random.coin() => pieces.push(step),
            UnsyncedChange::File(..) => {}
        }
    }
    for index in (1..pieces.len()).rev() {
        pieces.swap(index, random.up_to(index));
    }
    pieces.extend(names);
    pieces
}

/// Turns every write into the change of length that it makes.
fn keep_sizes(steps: &mut [UnsyncedChange], files: &[FileState]) {
    let mut lengths: Vec<u64> = files.iter().map(|file| file.durable.len()).collect();
    for step in steps {
        let UnsyncedChange::File(file, change) = step else {
            continue;
        };
        let length = &mut lengths[*file];
        *length = match change {
            FileChange::Write(offset, bytes) => (*length).max(*offset + bytes.len() as u64),
            FileChange::SetLen(set) => *set,
        };
        *change = FileChange::SetLen(*length);
    }
}

fn flip(steps: &mut [UnsyncedChange], random: &mut SplitMix) {
    if let Some((_, FileChange::Write(_, bytes))) = any_write(steps, random) {
        let mut flipped = bytes.to_vec();
        flipped[random.up_to(bytes.len() - 1)] ^= 1 << random.up_to(7);
        *bytes = flipped.into();
    }
}

fn misdirect(steps: &mut [UnsyncedChange], files: usize, random: &mut SplitMix) {
    if let Some((file, FileChange::Write(offset, _))) = any_write(steps, random) {
        // Near where it should have gone, or near other data.
        *file = random.up_to(files - 1);
        let sector = random.up_to(31) as u64 * SECTOR_BYTES;
        *offset = sector + *offset % SECTOR_BYTES;
    }
}

fn any_write<'s>(
    steps: &'s mut [UnsyncedChange],
    random: &mut SplitMix,
) -> Option<(&'s mut FileNumber, &'s mut FileChange)> {
    let mut writes: Vec<_> = steps
        .iter_mut()
        .filter_map(|step| match step {
            UnsyncedChange::File(file, change @ FileChange::Write(..)) => Some((file, change)),
            _ => None,
        })
        .filter(|(_, change)| matches!(change, FileChange::Write(_, bytes) if !bytes.is_empty()))
        .collect();
    let last = writes.len().checked_sub(1)?;
    Some(writes.swap_remove(random.up_to(last)))
}

/// SplitMix64 (Steele, Lea and Flood, 2014): the same seed gives the same damage.
#[derive(Debug)]
struct SplitMix(u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Returns a number from 0 to `last`, both possible.
    fn up_to(&mut self, last: usize) -> usize {
        (self.next() % (last as u64 + 1)) as usize
    }

    fn coin(&mut self) -> bool {
        self.next() & 1 == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Device;

    fn bytes_of(device: &MemoryDevice, name: &str) -> Option<Vec<u8>> {
        let file = device.open(name).ok()?;
        let mut bytes = vec![0; file.len().unwrap() as usize];
        file.read_at(&mut bytes, 0).unwrap();
        Some(bytes)
    }

    /// Returns a synced file `a` of 600 ones, with 2048 twos written over all of it, not synced.
    fn disk() -> Disk {
        let mut disk = Disk::new();
        for event in [
            Event::Create("a".into()),
            Event::Write(0, 0, vec![1; 600].into()),
            Event::Sync(0, 2),
            Event::SyncDir,
            Event::Write(0, 0, vec![2; 2048].into()),
        ] {
            disk.feed(&event);
        }
        disk
    }

    #[test]
    fn synced_bytes_survive_and_others_may_be_lost() {
        assert_eq!(
            bytes_of(&disk().crash(Damage::DropAll, 0), "a"),
            Some(vec![1; 600])
        );
        assert_eq!(
            bytes_of(&disk().crash(Damage::KeepAll, 0), "a"),
            Some(vec![2; 2048])
        );
    }

    #[test]
    fn a_file_whose_name_was_not_synced_is_gone() {
        let mut disk = Disk::new();
        disk.feed(&Event::Create("a".into()));
        disk.feed(&Event::Write(0, 0, vec![1; 10].into()));
        disk.feed(&Event::Sync(0, 2));
        assert_eq!(bytes_of(&disk.crash(Damage::DropAll, 0), "a"), None);
    }

    #[test]
    fn a_sync_covers_only_what_came_before_it_began() {
        let mut disk = disk();
        disk.feed(&Event::Sync(0, 4));
        assert_eq!(
            bytes_of(&disk.crash(Damage::DropAll, 0), "a"),
            Some(vec![1; 600])
        );
        disk.feed(&Event::Sync(0, 5));
        assert_eq!(
            bytes_of(&disk.crash(Damage::DropAll, 0), "a"),
            Some(vec![2; 2048])
        );
    }

    #[test]
    fn a_torn_write_is_cut_at_a_sector() {
        let mut lengths = Vec::new();
        for seed in 0..100 {
            let image = bytes_of(&disk().crash(Damage::Torn, seed), "a").unwrap();
            let twos = image.iter().take_while(|byte| **byte == 2).count();
            assert_eq!(twos % 512, 0, "seed {seed}");
            assert!(image[twos..].iter().all(|byte| *byte == 1), "seed {seed}");
            lengths.push(twos);
        }
        lengths.sort_unstable();
        lengths.dedup();
        assert_eq!(lengths, [0, 512, 1024, 1536]);
    }

    #[test]
    fn every_other_damage_shows_in_some_image() {
        let image = |damage, seed| bytes_of(&disk().crash(damage, seed), "a").unwrap();
        let shows = |damage, shown: &dyn Fn(&[u8]) -> bool| {
            assert!((0..100).any(|seed| shown(&image(damage, seed))), "{damage}");
        };
        shows(Damage::Garbage, &|bytes| bytes.iter().any(|byte| *byte > 2));
        shows(Damage::Reordered, &|bytes| {
            bytes[0] == 1 && bytes.get(513) == Some(&2)
        });
        shows(Damage::SizeOnly, &|bytes| {
            bytes.len() == 2048 && bytes[2047] == 0
        });
        shows(Damage::BitFlip, &|bytes| {
            bytes.iter().filter(|byte| **byte != 2).count() == 1
        });
        shows(Damage::Misdirected, &|bytes| {
            bytes[0] == 1 && bytes[600..].contains(&2)
        });
    }
}
