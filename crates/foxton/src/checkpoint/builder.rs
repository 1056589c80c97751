//! Making a checkpoint, step by step.
//!
//! A step reads the log from the last image on, as far as it is durable but at most so many bytes,
//! merges what it finds with those layers that are no longer much larger, writes the result as one
//! new layer, and switches to a manifest that names it. Then it removes what nobody names any more.
//!
//! # Which layers a step rewrites
//!
//! The last of a checkpoint those that the others have written, and then, from the newest back, each that is at most
//! [`RATIO`] times as large as all that goes into the new layer so far: what is left of the changes, one of each row, and the
//! layers after it. So each layer that stays is more than twice its successor, there are never more
//! than the logarithm of the database's size of them, and the oldest, which holds nearly everything,
//! is rewritten only when the changes since it was written have come to half its size: what a
//! checkpoint writes goes by what was changed, not by what there is. Other steps rewrite none: what they have written is
//! rewritten soon enough.
//!
//! # Order of the calls
//!
//! 1. the layer is written and synced;
//! 2. the manifest is written beside the old one, and synced;
//! 3. the directory is synced: both names are durable;
//! 4. the manifest is renamed over the old one;
//! 5. the directory is synced: from here on the new checkpoint is what there is;
//! 6. layers that it does not name, and segments of the log before `redo_from`, are removed.
//!
//! A crash before 4 leaves the old manifest, whose layers and segments are all there: they are
//! removed only in 6. Between 4 and 5 either manifest may be found, and the files of both are there.
//! After 5 it is the new one. What a crash leaves that no manifest names is removed by the next
//! checkpoint that gets to 6, never by opening: then it is not known whether the manifest that is seen
//! is the one on the disk.

use std::sync::Arc;

use foxton_log::Lsn;
use foxton_log::device::Device;
use foxton_log::format::segment;
use foxton_log::read::durable_reader::DurableReader;

use super::change_buffer::ChangeBuffer;
use super::error::{CheckpointError, failed};
use super::layer::{self, Layer, LayerReader, LayerWriter};
use super::manifest::Manifest;
use super::merge::{Below, Merge};
use super::pacing::Pacer;
use crate::redo::record::Effect;
use crate::redo::replay::{Replay, ReplayEvent};

/// A layer stays if it is larger than so many times what comes after it.
const RATIO: u64 = 2;

/// What the steps of one checkpoint share.
#[derive(Debug)]
pub(crate) struct BuildSteps<'d> {
    device: &'d dyn Device,
    /// Up to where the log is read.
    until: Lsn,
    /// What reads it, from the first step on: to begin takes a look at each segment that is left.
    log: Option<DurableReader<'d>>,
    /// Memory for what each of them reads.
    gathered: ChangeBuffer,
    /// How many layers they have written that are still there: the newest.
    layers: usize,
}

impl<'d> BuildSteps<'d> {
    /// Those up to `until`, which is durable.
    pub(crate) fn new(device: &'d dyn Device, until: Lsn) -> BuildSteps<'d> {
        BuildSteps {
            device,
            until,
            log: None,
            gathered: ChangeBuffer::default(),
            layers: 0,
        }
    }
}

/// Who makes checkpoints. One at a time.
#[derive(Debug)]
pub(crate) struct CheckpointBuilder {
    device: Arc<dyn Device>,
    identity: [u8; 16],
    manifest: Manifest,
    replay: Replay,
    /// Where to go on reading the log.
    at: Lsn,
    /// The end of the log when it was opened: transactions that had not ended there never will.
    opened_at: Lsn,
}

/// What a checkpoint will probably come to, in bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct ExpectedBytes {
    pub(super) older: u64,
    pub(super) moved: u64,
}

/// What a step did.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct StepOutcome {
    pub(crate) written_bytes: u64,
    pub(crate) segments_removed: usize,
    pub(crate) layers_removed: usize,
    /// Layers that went into the new one.
    pub(crate) layers_merged: usize,
}

impl CheckpointBuilder {
    /// Goes on from `manifest`, the one that the database was opened with; its log ended at
    /// `opened_at`.
    pub(crate) fn new(
        device: Arc<dyn Device>,
        identity: [u8; 16],
        manifest: Manifest,
        opened_at: Lsn,
    ) -> CheckpointBuilder {
        let (checkpoint_lsn, at) = (manifest.checkpoint_lsn, manifest.redo_from);
        CheckpointBuilder {
            device,
            identity,
            manifest,
            replay: Replay::new(checkpoint_lsn),
            at,
            opened_at,
        }
    }

    /// What is on the disk.
    pub(crate) fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Where everything is.
    pub(crate) fn device(&self) -> Arc<dyn Device> {
        self.device.clone()
    }

    /// What a checkpoint of `left` bytes of log, in steps of `memory`, will probably rewrite of older layers, and how much it will
    /// read and write in all.
    pub(super) fn expected(&self, left: u64, memory: u64) -> ExpectedBytes {
        let newest = self.manifest.layers.iter().rev();
        let older = newest.take(self.layers_to_merge(left, 0));
        let older = older.map(|layer| layer.bytes).sum::<u64>();
        // The log, and what is left of it, which more than one step reads again and writes once more.
        let moved = if left < memory { 2 } else { 4 };
        ExpectedBytes {
            older,
            moved: left.saturating_mul(moved).saturating_add(2 * older),
        }
    }

    /// How far the log was read.
    pub(crate) fn at(&self) -> Lsn {
        self.at
    }

    /// Brings the checkpoint up to where `steps` end, or as far as takes about
    /// `memory` bytes. `None` if there was nothing to do.
    pub(crate) fn step(
        &mut self,
        memory: u64,
        steps: &mut BuildSteps<'_>,
        pace: &Pacer<'_>,
    ) -> Result<Option<StepOutcome>, CheckpointError> {
        let done = self.try_step(memory, steps, pace);
        if done.is_err() {
            // What was read has come to nothing.
            steps.log = None;
            self.replay = Replay::new(self.manifest.checkpoint_lsn);
            self.at = self.manifest.redo_from;
        }
        done
    }

    fn try_step(
        &mut self,
        memory: u64,
        steps: &mut BuildSteps<'_>,
        pace: &Pacer<'_>,
    ) -> Result<Option<StepOutcome>, CheckpointError> {
        let mut next = self.manifest.clone();
        let is_last = self.gather(&mut next, memory, steps, pace)?;
        let gathered = &mut steps.gathered;
        if next.checkpoint_lsn <= self.manifest.checkpoint_lsn {
            return Ok(None);
        }
        let merged = match is_last {
            true => self.layers_to_merge(gathered.left_bytes(), steps.layers),
            false => 0,
        };
        let old = next.layers.split_off(next.layers.len() - merged);
        let mut step = StepOutcome {
            layers_merged: merged,
            ..StepOutcome::default()
        };
        if is_last {
            let older = old.iter().map(|layer| layer.bytes).sum::<u64>();
            pace.merges_last(older, gathered.left_bytes());
        }
        // The last step may find nothing more, and has those before it to merge all the same.
        if gathered.len() > 0 || merged > 1 {
            let below = match next.layers.is_empty() {
                true => Below::Nothing,
                false => Below::Layers,
            };
            let new = self.write_layer(&mut next, &old, gathered, below, pace)?;
            step.written_bytes = new.bytes;
            match new.entries {
                // Nothing is left of anything.
                0 => {}
                _ => {
                    next.layers.push(new);
                    steps.layers += 1;
                }
            }
        } else {
            next.layers.extend(old);
            step.layers_merged = 0;
        }
        next.sequence += 1;
        next.write(&*self.device, &self.identity)?;
        Manifest::switch(&*self.device)?;
        self.manifest = next;
        (step.layers_removed, step.segments_removed) = self.clear_away();
        Ok(Some(step))
    }

    /// Reads the log on, and says in `next` how far; and itself, whether there is nothing more to read.
    fn gather(
        &mut self,
        next: &mut Manifest,
        memory: u64,
        steps: &mut BuildSteps<'_>,
        pace: &Pacer<'_>,
    ) -> Result<bool, CheckpointError> {
        let gathered = &mut steps.gathered;
        gathered.clear();
        let log = match &mut steps.log {
            Some(log) => log,
            none => {
                let log = DurableReader::open(steps.device, &self.identity, self.at, steps.until);
                none.insert(log.map_err(CheckpointError::Log)?)
            }
        };
        while gathered.bytes() < memory {
            let Some(record) = log.next().map_err(CheckpointError::Log)? else {
                break;
            };
            let (lsn, end) = (record.lsn, record.end);
            if lsn >= self.opened_at && self.at <= self.opened_at {
                self.replay.forget_parts();
            }
            let told = self.replay.take(record);
            match told.map_err(|senseless| CheckpointError::InvalidRecord(lsn, senseless))? {
                ReplayEvent::Table(table) => next.tables.push(table),
                ReplayEvent::Committed(parts, changes) => {
                    let added = gathered.add(lsn, &parts);
                    let added = added.and_then(|()| gathered.add(lsn, changes));
                    added.map_err(|error| CheckpointError::InvalidRecord(lsn, error.into()))?;
                }
                ReplayEvent::Nothing => {}
            }
            pace.spend(end.since(lsn))?;
            self.at = end;
        }
        // Records of the log itself, too, lie behind us.
        self.at = log.at().max(self.at);
        if self.at == self.opened_at {
            self.replay.forget_parts();
        }
        next.checkpoint_lsn = self.at.max(next.checkpoint_lsn);
        next.redo_from = self.replay.earliest_part().unwrap_or(next.checkpoint_lsn);
        // As often as not it is full with the very last.
        let is_all = gathered.bytes() < memory || self.at >= steps.until;
        gathered.sort()?;
        Ok(is_all)
    }

    /// How many of the newest layers go into a new one with `bytes` of changes; at least `least`.
    fn layers_to_merge(&self, bytes: u64, least: usize) -> usize {
        let mut sum = bytes;
        let goes_in = |(at, layer): &(usize, &Layer)| {
            let goes_in = *at < least || layer.bytes <= sum.saturating_mul(RATIO);
            sum = sum.saturating_add(layer.bytes);
            goes_in
        };
        let layers = self.manifest.layers.iter().rev().enumerate();
        layers.take_while(goes_in).count()
    }

    fn write_layer(
        &self,
        next: &mut Manifest,
        old: &[Layer],
        gathered: &ChangeBuffer,
        below: Below,
        pace: &Pacer<'_>,
    ) -> Result<Layer, CheckpointError> {
        let device = &*self.device;
        let readers = old
            .iter()
            .map(|&layer| LayerReader::open(device, &self.identity, layer))
            .collect::<Result<Vec<_>, _>>()?;
        pace.expect(old.iter().map(|layer| layer.bytes).sum::<u64>());
        let mut merge = Merge::new(&readers, Some(gathered), below, None)?;
        let number = self.free_number()?;
        next.next_layer = number + 1;
        let write = || {
            let mut writer = LayerWriter::create(device, &self.identity, number)?;
            loop {
                pace.spend(merge.take_read())?;
                let Some(row) = merge.advance()? else {
                    return writer.finish();
                };
                // Where nothing is below, nothing could be gone.
                if row.effect != Effect::Delete || below == Below::Layers {
                    pace.wrote(writer.put(row)?)?;
                }
            }
        };
        let written = { write }();
        if written.is_err() {
            // Whatever there is of it is in the way of nobody, and is removed by the next one.
            let _ = device.remove(&layer::name(number));
        }
        written
    }

    /// A number that no layer has or had.
    fn free_number(&self) -> Result<u64, CheckpointError> {
        let names = self.device.list();
        let names = names.map_err(failed("list", "the directory"))?;
        let taken = names.iter().filter_map(|name| layer::number_of(name));
        let above = taken.map(|number| number + 1).max().unwrap_or(0);
        Ok(self.manifest.next_layer.max(above))
    }

    /// Removes what the manifest does not need. What cannot be removed is tried again next time.
    fn clear_away(&self) -> (usize, usize) {
        let needed = |number| {
            let mut layers = self.manifest.layers.iter();
            layers.any(|layer| layer.number == number)
        };
        let names = self.device.list().unwrap_or_default();
        let layers = names
            .iter()
            .filter(|name| layer::number_of(name).is_some_and(|number| !needed(number)))
            .filter(|name| self.device.remove(name).is_ok())
            .count();
        let segments = segment::remove_before(&*self.device, self.manifest.redo_from);
        (layers, segments.unwrap_or(0))
    }
}
