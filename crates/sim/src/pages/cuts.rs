//! Power cuts at every moment of a recorded run, of the restart after it, and of the restart after
//! that.

use super::Fault;
use super::audit::{Counted, audit};
use super::engine::{Contents, IDENTITY, Setting, Trouble, open};
use super::run::Run;
use super::wrong::crown;
use crate::ledger::mix;
use foxton_log::device::disk::{Damage, Disk};
use foxton_log::device::fault::{FaultDevice, Recording};
use foxton_log::device::memory::MemoryDevice;
use std::fmt;

/// Depth of cuts: a run, its restart, the restart of that.
const DEPTH: usize = 3;
/// The restart of one image of this many is cut after each of its changes; that of others once.
const THOROUGH: u64 = 16;

/// Counts of what was inspected.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Images restarted, by how often they had been cut.
    pub images: [u64; DEPTH],
    /// Changes that restarts made again.
    pub redone: u64,
    /// Transactions that restarts undid.
    pub losers: u64,
    /// Changes that restarts undid.
    pub undone: u64,
    /// Logs that were read from the beginning: no change in them is undone twice.
    pub audited: u64,
    /// Changes in the longest of these, and how many of them were undone.
    pub most: Counted,
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
        self.redone += other.redone;
        self.losers += other.losers;
        self.undone += other.undone;
        self.audited += other.audited;
        if other.most.updates > self.most.updates {
            self.most = other.most;
        }
    }
}

/// An image with wrong contents.
#[derive(Debug)]
pub struct Failure {
    /// Setting of the run.
    pub setting: Setting,
    /// After how many changes it was cut, and the damage to unsynced changes; then the same for its
    /// restart.
    pub cuts: Vec<(usize, Damage)>,
    /// Description of the fault.
    pub what: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Setting { seed, steps, fault } = self.setting;
        write!(f, "run {seed} of {steps} steps, fault {fault:?}")?;
        for (cut, damage) in &self.cuts {
            write!(f, ", cut after {cut} changes, {damage}")?;
        }
        write!(f, "\n  {}", self.what)
    }
}

impl std::error::Error for Failure {}

/// An image that was restarted and found right.
#[derive(Debug)]
pub struct Right {
    /// The directory that a power cut left.
    pub image: MemoryDevice,
    /// Its contents.
    pub contents: Contents,
}

impl Setting {
    /// Returns the kinds of damage that a power cut may do: none that harms durable bytes. Without
    /// images, none that tears a sector, because a page is one sector then.
    fn damages(&self) -> Vec<Damage> {
        let whole_sectors = [
            Damage::DropAll,
            Damage::KeepAll,
            Damage::Prefix,
            Damage::Subset,
            Damage::Reordered,
        ];
        let all = Damage::ALL.into_iter();
        let mild = all.filter(|damage| !damage.harms_durable());
        mild.filter(|damage| self.images() || whole_sectors.contains(damage))
            .collect()
    }
}

impl Run {
    /// Cuts the run after every `step`-th change, with every damage, and also cuts the restarts.
    /// Returns an image that was found right, too.
    ///
    /// # Errors
    ///
    /// The first image with wrong contents.
    pub fn cut_everywhere(
        &self,
        step: usize,
        tally: &mut Tally,
    ) -> Result<Option<Right>, Box<Failure>> {
        let mut right = None;
        let chosen = mix(self.setting.seed) as usize % (self.changes() + 1);
        for (cut, disk) in self.recording.disks().enumerate().step_by(step.max(1)) {
            for damage in self.setting.damages() {
                let seed = mix(self.setting.seed ^ mix(cut as u64));
                let image = disk.crash(damage, seed);
                let mut cuts = vec![(cut, damage)];
                let contents = self.look(&image, seed, &mut cuts, self.expected(cut), tally)?;
                if cut <= chosen {
                    right = Some(Right { image, contents });
                }
            }
        }
        Ok(right)
    }

    /// Returns the contents that may be found if the run was cut after `cut` changes.
    fn expected(&self, cut: usize) -> &[Contents] {
        let told = self.acknowledged.iter().filter(|(_, at)| *at <= cut);
        let must = told.map(|(commit, _)| *commit).max().unwrap_or(0);
        let may = self.begun.partition_point(|begun| *begun < cut);
        &self.states[must..=may.max(must)]
    }

    /// Restarts an image, compares the result, and cuts that restart in turn.
    fn look(
        &self,
        image: &MemoryDevice,
        seed: u64,
        cuts: &mut Vec<(usize, Damage)>,
        expected: &[Contents],
        tally: &mut Tally,
    ) -> Result<Contents, Box<Failure>> {
        let depth = cuts.len();
        tally.images[depth - 1] += 1;
        let restarted = self.restart(image, expected, tally);
        let (contents, recording) = restarted.map_err(|trouble| {
            Box::new(Failure {
                setting: self.setting,
                cuts: cuts.clone(),
                what: trouble.to_string(),
            })
        })?;
        if depth == DEPTH {
            return Ok(contents);
        }
        let damages = self.setting.damages();
        let thorough = depth == 1 && mix(seed ^ 5).is_multiple_of(THOROUGH);
        let chosen = mix(seed ^ 6) as usize % (recording.len() + 1);
        let settled = std::slice::from_ref(&contents);
        for (cut, disk) in chosen_disks(&recording, thorough, chosen) {
            let seed = mix(seed ^ mix(cut as u64 ^ 7));
            let damage = damages[seed as usize % damages.len()];
            cuts.push((cut, damage));
            self.look(&disk.crash(damage, seed), seed, cuts, settled, tally)?;
            cuts.pop();
        }
        Ok(contents)
    }

    /// Restarts the image. Returns its contents, which must be one of `expected`, and the changes
    /// of the device.
    fn restart(
        &self,
        image: &MemoryDevice,
        expected: &[Contents],
        tally: &mut Tally,
    ) -> Result<(Contents, Recording), Trouble> {
        let device = FaultDevice::holding(image);
        if self.setting.fault == Some(Fault::LoserWins) {
            crown(&device)?;
        }
        device.record();
        let engine = open(&device, &self.setting)?;
        let recording = device.recording().expect("it was recording");
        let restarted = &engine.recovered.summary;
        tally.redone += restarted.redone;
        tally.losers += restarted.losers as u64;
        tally.undone += restarted.undone;
        if engine.log_end() > engine.limit {
            return Err("restart went beyond the limit of the log".into());
        }
        let left = restarted.checkpoint.map_or(0, |made| made.transactions);
        if left > 0 {
            return Err(format!("{left} transactions are still running").into());
        }
        let contents = engine.pool.things()?;
        if !expected.contains(&contents) {
            let [first, .., last] = expected else {
                let only = &expected[0];
                return Err(format!("found {contents:?}, expected {only:?}").into());
            };
            let what = format!("found {contents:?}, expected {first:?} or later, up to {last:?}");
            return Err(what.into());
        }
        engine.wait(engine.log_end())?;
        if !self.setting.cuts_log() {
            let counted = audit(&device, &IDENTITY)?;
            tally.audited += 1;
            if counted.updates > tally.most.updates {
                tally.most = counted;
            }
        }
        Ok((contents, recording))
    }
}

/// Returns one disk of the recording, or all.
fn chosen_disks(recording: &Recording, all: bool, chosen: usize) -> Vec<(usize, Disk)> {
    let disks = recording.disks().enumerate();
    disks.filter(|(cut, _)| all || *cut == chosen).collect()
}
