//! Power cuts at every moment of a recorded run, of the restart after it, and of the restart after
//! that.

use super::load::{Random, Run, apply};
use super::{Rows, Setting, TABLES, check_indexes, difference, read, without_panic};
use crate::ledger::mix;
use crate::pages::audit::audit;
use crate::victim::FRAMES;
use foxton::Durability;
use foxton_log::Lsn;
use foxton_log::device::Device;
use foxton_log::device::disk::{Damage, Disk};
use foxton_log::device::fault::{FaultDevice, Recording};
use foxton_log::device::memory::MemoryDevice;
use foxton_log::format::{segment, superblock::Superblock};
use std::fmt;
use std::fs;
use std::io;
use std::path::Path;

/// Depth of cuts: a run, its restart, the restart of that.
const DEPTH: usize = 3;
/// The restart of one image of this many is cut after each of its changes; that of others once.
const THOROUGH: u64 = 64;
/// Error codes that name damage.
const DAMAGE: [&str; 4] = ["damaged", "foreign", "future_format", "not_a_database"];

/// Counts of what was inspected.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Images restarted, by how often they had been cut.
    pub images: [u64; DEPTH],
    /// Compensations in the logs that were read from the beginning: no change is undone twice.
    pub audited: u64,
    /// Images that were refused as damaged, where durable bytes were harmed.
    pub refused: u64,
}

impl Tally {
    /// Returns the number of all images.
    pub fn all(&self) -> u64 {
        self.images.iter().sum()
    }

    /// Adds the counts of another tally.
    pub fn add(&mut self, other: &Tally) {
        for (sum, more) in self.images.iter_mut().zip(other.images) {
            *sum += more;
        }
        self.audited += other.audited;
        self.refused += other.refused;
    }
}

/// An image with wrong rows.
#[derive(Debug)]
pub struct Failure {
    /// Setting of the run.
    pub setting: Setting,
    /// After how many changes it was cut, and the damage to unsynced changes; then the same for its
    /// restart.
    pub cuts: Vec<(usize, Damage)>,
    /// The directory that the last cut left.
    pub image: MemoryDevice,
    /// Description of the fault.
    pub what: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.setting)?;
        for (cut, damage) in &self.cuts {
            write!(f, ", cut after {cut} changes, {damage}")?;
        }
        write!(f, "\n  {}", self.what)
    }
}

impl std::error::Error for Failure {}

impl Failure {
    /// Writes the files of the image to `folder`, which must not exist.
    ///
    /// # Errors
    ///
    /// Any error of the file system.
    pub fn keep(&self, folder: &Path) -> io::Result<()> {
        fs::create_dir(folder)?;
        for (name, contents) in self.image.files() {
            let mut bytes = vec![0; contents.len() as usize];
            contents.read(&mut bytes, 0);
            fs::write(folder.join(name), bytes)?;
        }
        Ok(())
    }
}

/// An image that was restarted and found right.
struct Right {
    rows: Rows,
    /// The rows after one more transaction.
    after: Rows,
    /// Number of recorded changes when that transaction's commit began.
    begun: usize,
    /// Number of recorded changes when it was acknowledged.
    acknowledged: usize,
    recording: Recording,
}

impl Right {
    /// Returns the rows that may be found if this restart is cut after `cut` changes.
    fn expected(&self, cut: usize) -> Vec<Rows> {
        let mut expected = Vec::new();
        if cut < self.acknowledged {
            expected.push(self.rows.clone());
        }
        if self.begun < cut {
            expected.push(self.after.clone());
        }
        expected
    }
}

/// The damages that are done at each cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Damages {
    /// All of them.
    All,
    /// One of them, as the seed draws.
    One,
}

/// Returns the kinds of damage that spare durable bytes.
fn mild() -> Vec<Damage> {
    let all = Damage::ALL.into_iter();
    all.filter(|damage| !damage.harms_durable()).collect()
}

impl Run {
    /// Cuts the run after every `step`-th change, and also cuts the restarts. `progress` is called
    /// with the number of images after each cut.
    ///
    /// # Errors
    ///
    /// The first image with wrong rows.
    pub fn cut_everywhere(
        &self,
        step: usize,
        damages: Damages,
        tally: &mut Tally,
        progress: &dyn Fn(u64),
    ) -> Result<(), Box<Failure>> {
        for (cut, disk) in self.recording.disks().enumerate().step_by(step.max(1)) {
            let seed = mix(self.setting.seed ^ mix(cut as u64));
            let drawn = Damage::ALL[seed as usize % Damage::ALL.len()];
            let before = tally.all();
            let is_chosen = |damage: &Damage| damages == Damages::All || *damage == drawn;
            for damage in Damage::ALL.into_iter().filter(is_chosen) {
                let image = disk.crash(damage, seed);
                let mut cuts = vec![(cut, damage)];
                match damage.harms_durable() {
                    true => self.inspect_harmed(&image, cut, damage, tally)?,
                    false => {
                        let expected = self.commits.expected(cut);
                        self.inspect(&image, seed, &mut cuts, expected, tally)?;
                    }
                }
            }
            progress(tally.all() - before);
        }
        Ok(())
    }

    fn failure(
        &self,
        cuts: &[(usize, Damage)],
        image: &MemoryDevice,
        what: String,
    ) -> Box<Failure> {
        Box::new(Failure {
            setting: self.setting,
            cuts: cuts.to_vec(),
            image: MemoryDevice::with_files(image.files()),
            what,
        })
    }

    /// Opens an image whose durable bytes may be harmed. It may be refused as damaged, or lack the
    /// last commits.
    fn inspect_harmed(
        &self,
        image: &MemoryDevice,
        cut: usize,
        damage: Damage,
        tally: &mut Tally,
    ) -> Result<(), Box<Failure>> {
        tally.images[0] += 1;
        let opened = without_panic(|| {
            let opened = self.setting.open(FaultDevice::holding(image));
            match opened.and_then(|db| read(&db)) {
                Ok(rows) => Ok(Some(rows)),
                Err(error) if DAMAGE.contains(&error.code()) => Ok(None),
                Err(error) => Err(format!("{} ({error})", error.code())),
            }
        });
        let found = opened.and_then(|rows| match rows {
            None => {
                tally.refused += 1;
                Ok(())
            }
            Some(rows) => compare(&rows, self.commits.possible(cut)),
        });
        found.map_err(|what| self.failure(&[(cut, damage)], image, what))
    }

    /// Restarts an image, compares the result, and cuts that restart in turn.
    fn inspect(
        &self,
        image: &MemoryDevice,
        seed: u64,
        cuts: &mut Vec<(usize, Damage)>,
        expected: &[Rows],
        tally: &mut Tally,
    ) -> Result<(), Box<Failure>> {
        let depth = cuts.len();
        tally.images[depth - 1] += 1;
        let restarted = without_panic(|| self.restart(image, seed, expected, tally));
        let right = restarted.map_err(|what| self.failure(cuts, image, what))?;
        if depth == DEPTH {
            return Ok(());
        }
        let damages = mild();
        let is_thorough = depth == 1 && mix(seed ^ 5).is_multiple_of(THOROUGH);
        let chosen = mix(seed ^ 6) as usize % (right.recording.len() + 1);
        for (cut, disk) in chosen_disks(&right.recording, is_thorough, chosen) {
            let seed = mix(seed ^ mix(cut as u64 ^ 7));
            let damage = damages[seed as usize % damages.len()];
            cuts.push((cut, damage));
            let image = disk.crash(damage, seed);
            self.inspect(&image, seed, cuts, &right.expected(cut), tally)?;
            cuts.pop();
        }
        Ok(())
    }

    /// Restarts the image. Its rows must be those of one of `expected`. One more transaction
    /// commits, and another is left open.
    fn restart(
        &self,
        image: &MemoryDevice,
        seed: u64,
        expected: &[Rows],
        tally: &mut Tally,
    ) -> Result<Right, String> {
        let device = FaultDevice::holding(image);
        device.record();
        let failed = |doing: &'static str| {
            move |error: foxton::Error| format!("{doing}: {} ({error})", error.code())
        };
        let db = self.setting.open(device.clone());
        let db = db.map_err(failed("opening"))?;
        let rows = read(&db).map_err(failed("reading"))?;
        compare(&rows, expected)?;
        check_indexes(&db, &rows).map_err(failed("reading by indexes"))??;
        db.verify();
        tally.audited += audit_log(&device.crash(Damage::KeepAll, 0))?;
        let mut random = Random::new(seed);
        let mut after = rows.clone();
        let mut write = |transaction: &mut foxton::Transaction| {
            for number in 0..FRAMES {
                let key = (number % TABLES.len(), vec![random.below(256) as u8; 9]);
                let value = vec![number as u8; random.below(90) as usize];
                apply(transaction, &key, Some(&value))?;
                after.insert(key, value);
            }
            Ok(())
        };
        let mut transaction = db.begin().map_err(failed("beginning"))?;
        transaction.set_durability(Durability::Sync);
        write(&mut transaction).map_err(failed("writing"))?;
        let begun = device.recorded();
        transaction.commit().map_err(failed("committing"))?;
        let acknowledged = device.recorded();
        let committed = after.clone();
        let mut open = db.begin().map_err(failed("beginning"))?;
        let write = |transaction: &mut foxton::Transaction| {
            (committed.keys().take(2 * FRAMES)).try_for_each(|key| {
                apply(
                    transaction,
                    key,
                    seed.is_multiple_of(2).then_some(&b"open"[..]),
                )
            })
        };
        write(&mut open).map_err(failed("writing"))?;
        if seed.is_multiple_of(3) {
            open.rollback();
            db.close().map_err(failed("closing"))?;
        }
        let recording = device.recording().expect("it was recording");
        Ok(Right {
            rows,
            after: committed,
            begun,
            acknowledged,
            recording,
        })
    }
}

/// Returns an error if the rows are not one of `expected`.
fn compare(rows: &Rows, expected: &[Rows]) -> Result<(), String> {
    if expected.contains(rows) {
        return Ok(());
    }
    let differs = expected.iter().map(|state| difference(rows, state));
    let differs: Vec<_> = differs.collect();
    Err(format!("wrong rows: {}", differs.join("\n    or ")))
}

/// Audits the log, if all of it is still there. Returns the number of changes that were undone, or
/// an error if one was undone twice, or one that was committed.
fn audit_log(image: &MemoryDevice) -> Result<u64, String> {
    let failed = |error: &dyn fmt::Display| format!("the log: {error}");
    let superblock = Superblock::read(image).map_err(|error| failed(&error))?;
    if !is_whole(image).map_err(|error| failed(&error))? {
        return Ok(0);
    }
    let audited = audit(image, &superblock.identity);
    audited
        .map(|counted| counted.compensations)
        .map_err(|error| failed(&error))
}

/// True if no segment was removed. A power cut may undo some of the removals and keep others.
fn is_whole(image: &MemoryDevice) -> io::Result<bool> {
    let names = image.list()?;
    let mut firsts: Vec<Lsn> = names
        .iter()
        .filter_map(|name| segment::first_of(name))
        .collect();
    firsts.sort_unstable();
    let mut end = Lsn::ZERO;
    for first in firsts {
        if first != end {
            return Ok(false);
        }
        let bytes = image.open(&segment::name(first))?.len()?;
        end = first.plus(bytes.saturating_sub(segment::HEADER_BYTES));
    }
    Ok(true)
}

/// Returns one disk of the recording, or all.
fn chosen_disks(recording: &Recording, all: bool, chosen: usize) -> Vec<(usize, Disk)> {
    let disks = recording.disks().enumerate();
    disks.filter(|(cut, _)| all || *cut == chosen).collect()
}
