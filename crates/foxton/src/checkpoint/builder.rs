//! Building a checkpoint, step by step.
//!
//! A step reads the durable log from the last `checkpoint_lsn` on, up to a number of bytes. It
//! merges these changes with the layers that are not much larger, writes the result as one new
//! layer, and switches to a manifest that names it. Then it removes files that no manifest names
//! any more.
//!
//! # Which layers a step rewrites
//!
//! The last step of a checkpoint rewrites the layers that the other steps wrote. It then goes back
//! from the newest layer. It rewrites each layer that is at most [`RATIO`] times as large as all
//! that already goes into the new layer: the remaining changes, one of each row, and the newer
//! layers. So each layer that stays is more than twice as large as its successor, and the number of
//! layers is at most logarithmic in the size of the database. The oldest layer, which contains
//! nearly everything, is rewritten only when the changes since it was written have reached half its
//! size. So the bytes that a checkpoint writes depend on the changes, not on the size of the
//! database. Other steps rewrite no layers, because their own layers are soon rewritten.
//!
//! # Large transactions
//!
//! A transaction that was written in parts may be larger than the memory of a step. Until it is
//! committed, the builder keeps the positions of its parts. Then it reads them again and writes a
//! layer each time the buffer is full. The manifest names all of these layers or none, because a
//! checkpoint contains whole transactions.
//!
//! # Order of the calls
//!
//! 1. the layer is written and synced;
//! 2. the manifest is written beside the old one, and synced;
//! 3. the directory is synced: both names are durable;
//! 4. the manifest is renamed over the old one;
//! 5. the directory is synced: from here on the new checkpoint is valid;
//! 6. layers that it does not name, and segments of the log before `redo_from` that
//!    [pages](super::needed_log) do not need either, are removed. This is done under
//!    the exclusive lock on [`REMOVAL_LOCK`], or by a later checkpoint if a backup shares the lock.
//!
//! A crash before 4 leaves the old manifest, whose layers and segments all exist, because they are
//! removed only in 6. A crash between 4 and 5 leaves either manifest, and the files of both exist.
//! A crash after 5 leaves the new manifest. Files that a crash leaves and no manifest names are
//! removed by the next checkpoint that reaches 6. Opening never removes them, because it cannot
//! know whether the manifest it sees is durable.

use std::sync::Arc;

use foxton_log::Lsn;
use foxton_log::device::{Device, FileLockMode};
use foxton_log::format::segment;
use foxton_log::read::durable_reader::DurableReader;
use foxton_log::read::record_reader::RecordReader;

use super::change_buffer::ChangeBuffer;
use super::error::{CheckpointError, failed};
use super::layer::{self, Layer, LayerReader, LayerWriter};
use super::manifest::Manifest;
use super::merge::{Below, Merge};
use super::needed_log::NeededLog;
use super::pacing::Pacer;
use super::{REMOVAL_LOCK, STEP_BYTES, STEPS};
use crate::redo::parts::PartCursor;
use crate::redo::record::Effect;
use crate::redo::replay::{Replay, ReplayEvent};

/// A layer stays if it is larger than this many times the newer data.
const RATIO: u64 = 2;

/// State shared by the steps of one checkpoint.
#[derive(Debug)]
pub(crate) struct BuildSteps<'d> {
    device: &'d dyn Device,
    /// LSN up to which the log is read.
    until: Lsn,
    /// Reader of the log. It is kept from the first step on, because creating one checks every
    /// remaining segment.
    log: Option<DurableReader<'d>>,
    /// Buffer for the changes of a step.
    buffer: ChangeBuffer,
    /// Number of layers written by the steps that still exist; they are the newest.
    layers: usize,
    /// The committed transaction whose parts are being read.
    parts: Option<PartCursor>,
    /// Reader of parts, once there were any.
    part_log: Option<RecordReader<'d>>,
    /// Numbers of the layers that this step has written.
    written: Vec<u64>,
}

/// How much of the log a step has read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Collected {
    /// All of it.
    All,
    /// As much as fits into its memory.
    Some,
    /// As much as fits, and the last transaction is not complete.
    Incomplete,
}

impl<'d> BuildSteps<'d> {
    /// Creates the steps up to `until`, which is durable.
    pub(crate) fn new(device: &'d dyn Device, until: Lsn) -> BuildSteps<'d> {
        BuildSteps {
            device,
            until,
            log: None,
            buffer: ChangeBuffer::default(),
            layers: 0,
            parts: None,
            part_log: None,
            written: Vec::new(),
        }
    }

    /// Returns the memory of the buffer, in bytes, which never shrinks.
    #[cfg(test)]
    pub(super) fn buffer_bytes(&self) -> usize {
        self.buffer.memory_bytes()
    }
}

/// Builds checkpoints, one at a time.
#[derive(Debug)]
pub(crate) struct CheckpointBuilder {
    device: Arc<dyn Device>,
    identity: [u8; 16],
    manifest: Manifest,
    replay: Replay,
    /// LSN at which to continue reading the log.
    at: Lsn,
    /// End of the log when the database was opened: transactions that had not ended there never
    /// will.
    opened_at: Lsn,
    /// Where the log begins that pages need.
    pages_from: Arc<NeededLog>,
}

/// Estimated bytes of a checkpoint.
#[derive(Debug, Clone, Copy)]
pub(super) struct ExpectedBytes {
    pub(super) older: u64,
    pub(super) moved: u64,
}

/// Result of a step.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct StepOutcome {
    pub(crate) written_bytes: u64,
    pub(crate) segments_removed: usize,
    pub(crate) layers_removed: usize,
    /// Number of layers merged into the new one.
    pub(crate) layers_merged: usize,
}

impl CheckpointBuilder {
    /// Continues from `manifest`, the one that the database was opened with, whose log ended at
    /// `opened_at`.
    pub(crate) fn new(
        device: Arc<dyn Device>,
        identity: [u8; 16],
        manifest: Manifest,
        opened_at: Lsn,
        pages_from: Arc<NeededLog>,
    ) -> CheckpointBuilder {
        let (checkpoint_lsn, at) = (manifest.checkpoint_lsn, manifest.redo_from);
        CheckpointBuilder {
            device,
            identity,
            manifest,
            replay: Replay::new(checkpoint_lsn),
            at,
            opened_at,
            pages_from,
        }
    }

    /// Returns the manifest on the device.
    pub(crate) fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Returns the device.
    pub(crate) fn device(&self) -> Arc<dyn Device> {
        self.device.clone()
    }

    /// Estimates, for a checkpoint of `left` bytes of log in steps of `memory` bytes, the bytes of
    /// older layers to rewrite, and all bytes to read and write.
    pub(super) fn expected(&self, left: u64, memory: u64) -> ExpectedBytes {
        let newest = self.manifest.layers.iter().rev();
        let older = newest.take(layers_to_merge(&self.manifest.layers, left, 0));
        let older = older.map(|layer| layer.bytes).sum::<u64>();
        // The log and its remaining changes. If there is more than one step, the changes are read
        // again and written once more.
        let moved = if left < memory { 2 } else { 4 };
        ExpectedBytes {
            older,
            moved: left.saturating_mul(moved).saturating_add(2 * older),
        }
    }

    /// Returns the approximate memory, in bytes, that is kept between checkpoints.
    #[cfg(test)]
    pub(super) fn held_bytes(&self) -> u64 {
        self.replay.held_bytes()
    }

    /// Returns the LSN up to which the log was read.
    pub(crate) fn at(&self) -> Lsn {
        self.at
    }

    /// Advances the checkpoint to the end of `steps`, or by about `memory` bytes. Returns `None` if
    /// there was nothing to do.
    pub(crate) fn step(
        &mut self,
        memory: u64,
        steps: &mut BuildSteps<'_>,
        pacer: &Pacer<'_>,
    ) -> Result<Option<StepOutcome>, CheckpointError> {
        let done = self.try_step(memory, steps, pacer);
        if done.is_err() {
            // Discards what was read, because the step failed.
            (steps.log, steps.parts, steps.part_log) = (None, None, None);
            self.replay = Replay::new(self.manifest.checkpoint_lsn);
            self.at = self.manifest.redo_from;
        }
        done
    }

    fn try_step(
        &mut self,
        memory: u64,
        steps: &mut BuildSteps<'_>,
        pacer: &Pacer<'_>,
    ) -> Result<Option<StepOutcome>, CheckpointError> {
        let mut next = self.manifest.clone();
        let mut step = StepOutcome::default();
        steps.written.clear();
        let written = self.write_layers(&mut next, &mut step, memory, steps, pacer);
        if written.is_err() {
            // No manifest names them.
            for &number in &steps.written {
                let _ = self.device.remove(&layer::name(number));
            }
        }
        if !written? {
            return Ok(None);
        }
        next.sequence += 1;
        next.write(&*self.device, &self.identity)?;
        Manifest::switch(&*self.device)?;
        self.manifest = next;
        (step.layers_removed, step.segments_removed) = self.clear_away();
        Ok(Some(step))
    }

    /// Reads the log and writes the layers of a step, most often one. Returns false if there was
    /// nothing to do.
    fn write_layers(
        &mut self,
        next: &mut Manifest,
        step: &mut StepOutcome,
        memory: u64,
        steps: &mut BuildSteps<'_>,
        pacer: &Pacer<'_>,
    ) -> Result<bool, CheckpointError> {
        loop {
            let gathered = self.gather(next, memory, steps, pacer)?;
            let buffer = &mut steps.buffer;
            let is_last = gathered == Collected::All;
            if gathered != Collected::Incomplete
                && next.checkpoint_lsn <= self.manifest.checkpoint_lsn
            {
                return Ok(false);
            }
            let merged = match is_last {
                true => layers_to_merge(&next.layers, buffer.left_bytes(), steps.layers),
                false => 0,
            };
            let old = next.layers.split_off(next.layers.len() - merged);
            if is_last {
                let older = old.iter().map(|layer| layer.bytes).sum::<u64>();
                pacer.set_last_merge(older, buffer.left_bytes());
            }
            // The last step may find no more changes, but still has to merge the layers of earlier
            // steps.
            if buffer.len() > 0 || merged > 1 {
                let below = match next.layers.is_empty() {
                    true => Below::Nothing,
                    false => Below::Layers,
                };
                let new = self.write_layer(next, &old, buffer, below, pacer)?;
                steps.written.push(new.number);
                step.written_bytes += new.bytes;
                step.layers_merged = merged;
                match new.entries {
                    // All rows were deleted.
                    0 => {}
                    _ => {
                        next.layers.push(new);
                        steps.layers += 1;
                    }
                }
            } else {
                next.layers.extend(old);
            }
            if gathered != Collected::Incomplete {
                return Ok(true);
            }
        }
    }

    /// Reads the log and stores in `next` how far.
    fn gather(
        &mut self,
        next: &mut Manifest,
        memory: u64,
        steps: &mut BuildSteps<'_>,
        pacer: &Pacer<'_>,
    ) -> Result<Collected, CheckpointError> {
        let BuildSteps {
            buffer,
            parts,
            part_log,
            ..
        } = steps;
        buffer.clear();
        let log = match &mut steps.log {
            Some(log) => log,
            none => {
                let log = DurableReader::open(steps.device, &self.identity, self.at, steps.until);
                none.insert(log.map_err(CheckpointError::Log)?)
            }
        };
        loop {
            if let Some(cursor) = parts {
                let part_log = match &mut *part_log {
                    Some(part_log) => part_log,
                    none => none.insert(self.open_parts(steps.device, steps.until)?),
                };
                if !gather_parts(buffer, cursor, part_log, memory, pacer)? {
                    buffer.sort()?;
                    return Ok(Collected::Incomplete);
                }
                self.at = cursor.end();
                *parts = None;
            }
            if buffer.bytes() >= memory {
                break;
            }
            let Some(record) = log.next().map_err(CheckpointError::Log)? else {
                break;
            };
            let (lsn, end) = (record.lsn, record.end);
            if lsn >= self.opened_at && self.at <= self.opened_at {
                self.replay.forget_parts();
            }
            let event = self.replay.take(record);
            match event.map_err(|invalid| CheckpointError::InvalidRecord(lsn, invalid))? {
                ReplayEvent::Table(table) => next.tables.push(table),
                ReplayEvent::Committed(changes) => {
                    let added = buffer.add(lsn, changes);
                    added.map_err(|error| CheckpointError::InvalidRecord(lsn, error.into()))?;
                }
                ReplayEvent::InParts(committed) => {
                    *parts = Some(PartCursor::new(committed));
                }
                ReplayEvent::Nothing => {}
            }
            pacer.spend(end.since(lsn))?;
            if parts.is_none() {
                self.at = end;
            }
        }
        // Include the log's own records.
        self.at = log.at().max(self.at);
        if self.at == self.opened_at {
            self.replay.forget_parts();
        }
        next.checkpoint_lsn = self.at.max(next.checkpoint_lsn);
        next.redo_from = self.replay.earliest_part().unwrap_or(next.checkpoint_lsn);
        // The buffer may be full at the very end of the log.
        let is_all = buffer.bytes() < memory || self.at >= steps.until;
        buffer.sort()?;
        Ok(match is_all {
            true => Collected::All,
            false => Collected::Some,
        })
    }

    /// Opens a reader of the parts that were read or will be.
    fn open_parts<'d>(
        &self,
        device: &'d dyn Device,
        until: Lsn,
    ) -> Result<RecordReader<'d>, CheckpointError> {
        let from = self.manifest.redo_from;
        let opened = RecordReader::open(device, &self.identity, from, until);
        opened
            .map(RecordReader::forwards)
            .map_err(CheckpointError::Log)
    }

    fn write_layer(
        &self,
        next: &mut Manifest,
        old: &[Layer],
        buffer: &ChangeBuffer,
        below: Below,
        pacer: &Pacer<'_>,
    ) -> Result<Layer, CheckpointError> {
        let device = &*self.device;
        let readers = old
            .iter()
            .map(|&layer| LayerReader::open(device, &self.identity, layer))
            .collect::<Result<Vec<_>, _>>()?;
        pacer.expect(old.iter().map(|layer| layer.bytes).sum::<u64>());
        let mut merge = Merge::new(&readers, Some(buffer), below, None)?;
        let number = self.free_number()?;
        next.next_layer = number + 1;
        let write = || {
            let mut writer = LayerWriter::create(device, &self.identity, number)?;
            loop {
                pacer.spend(merge.take_read())?;
                let Some(row) = merge.advance()? else {
                    return writer.finish();
                };
                // Without older layers a deletion has nothing to delete.
                if row.effect != Effect::Delete || below == Below::Layers {
                    pacer.wrote(writer.put(row)?)?;
                }
            }
        };
        let written = { write }();
        if written.is_err() {
            // A partial file does no harm; the next checkpoint removes it.
            let _ = device.remove(&layer::name(number));
        }
        written
    }

    /// Returns a number that no layer has or had.
    fn free_number(&self) -> Result<u64, CheckpointError> {
        let names = self.device.list();
        let names = names.map_err(failed("list", "the directory"))?;
        let taken = names.iter().filter_map(|name| layer::number_of(name));
        let above = taken.map(|number| number + 1).max().unwrap_or(0);
        Ok(self.manifest.next_layer.max(above))
    }

    /// Removes files that the manifest does not need. The next checkpoint retries what cannot be
    /// removed, or may not, because a backup is opening files.
    fn clear_away(&self) -> (usize, usize) {
        // Where files cannot be locked, a backup sees that the manifest has changed.
        let lock = self
            .device
            .try_lock_file(REMOVAL_LOCK, FileLockMode::Exclusive);
        if matches!(lock, Ok(None)) {
            return (0, 0);
        }
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
        let needed_from = self.manifest.redo_from.min(self.pages_from.get());
        let segments = segment::remove_before(&*self.device, needed_from);
        (layers, segments.unwrap_or(0))
    }
}

/// Adds parts to the buffer until it is full. Returns true if none are left.
fn gather_parts(
    buffer: &mut ChangeBuffer,
    parts: &mut PartCursor,
    log: &mut RecordReader<'_>,
    memory: u64,
    pacer: &Pacer<'_>,
) -> Result<bool, CheckpointError> {
    // A small step would make many layers of a large transaction.
    let memory = memory.max((parts.bytes() / STEPS).min(STEP_BYTES));
    while buffer.bytes() < memory {
        let Some((lsn, changes)) = parts.next(log).map_err(CheckpointError::unread)? else {
            return Ok(true);
        };
        let added = buffer.add(lsn, changes);
        added.map_err(|error| CheckpointError::InvalidRecord(lsn, error.into()))?;
        pacer.spend(0)?;
    }
    Ok(false)
}

/// Returns how many of the newest of `layers` go into a new one with `bytes` of changes; at least
/// `least`.
fn layers_to_merge(layers: &[Layer], bytes: u64, least: usize) -> usize {
    let mut sum = bytes;
    let goes_in = |(at, layer): &(usize, &Layer)| {
        let goes_in = *at < least || layer.bytes <= sum.saturating_mul(RATIO);
        sum = sum.saturating_add(layer.bytes);
        goes_in
    };
    layers.iter().rev().enumerate().take_while(goes_in).count()
}
