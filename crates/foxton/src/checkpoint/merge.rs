//! Merging layers: several layers read as one. Each row has its newest entry. If that is a patch,
//! it is composed with older entries.
//!
//! # Invariants
//!
//! * I1  The entry returned for a row has the same effect on the layers below all sources as the
//!   entries of the sources, one after the other. If there is nothing below, no patch is returned,
//!   because it would be a patch of a row that does not exist.

use std::cmp::Ordering;

use super::change_buffer::ChangeBuffer;
use super::compose::ComposedChange;
use super::error::CheckpointError;
use super::layer::{LayerCursor, LayerReader};
use super::sort_key::Row;
use crate::redo::record::{Effect, RowChange};

/// A source of entries.
#[derive(Debug)]
enum Source<'r> {
    Layer(LayerCursor<'r>),
    Memory(&'r ChangeBuffer, usize),
}

impl Source<'_> {
    fn entry(&self) -> Option<RowChange<'_>> {
        match self {
            Source::Layer(cursor) => cursor.entry(),
            Source::Memory(buffer, at) => buffer.get(*at),
        }
    }

    /// Returns the row of its current entry.
    fn row(&self) -> Option<Row> {
        match self {
            Source::Layer(cursor) => cursor.entry().map(|entry| Row::new(entry.table, entry.key)),
            Source::Memory(buffer, at) => buffer.row(*at),
        }
    }

    fn advance(&mut self) -> Result<u64, CheckpointError> {
        match self {
            Source::Layer(cursor) => {
                cursor.advance()?;
                Ok(cursor.take_read())
            }
            Source::Memory(_, at) => {
                *at += 1;
                Ok(0)
            }
        }
    }

    /// Returns the error that its current patch does not fit the layers below.
    fn misfit(&self) -> CheckpointError {
        match self {
            Source::Layer(cursor) => {
                cursor.damaged("a patch does not fit what older layers say of its row")
            }
            Source::Memory(buffer, at) => {
                let what = "a patch that fits what the checkpoint says of its row";
                CheckpointError::InvalidRecord(
                    buffer.lsn(*at),
                    crate::redo::replay::InvalidRecord(what),
                )
            }
        }
    }
}

/// The layers below the sources of a merge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Below {
    /// There are older layers.
    Layers,
    /// There are none: the oldest layer is among the sources.
    Nothing,
}

/// Iterator over the rows of several layers, in order.
#[derive(Debug)]
pub(crate) struct Merge<'r> {
    /// The sources, oldest first.
    sources: Vec<Source<'r>>,
    /// The row of each source's current entry.
    rows: Vec<Option<Row>>,
    below: Below,
    /// Indexes of the sources whose current entry is the row returned last, oldest first.
    spent: Vec<usize>,
    fold: ComposedChange,
    /// Bytes read from layers since the last call of `take_read`.
    read: u64,
}

impl<'r> Merge<'r> {
    /// Creates a merge of `layers`, oldest first, and of the changes since, beginning at the row
    /// `from`.
    pub(crate) fn new(
        layers: impl IntoIterator<Item = &'r LayerReader>,
        buffer: Option<&'r ChangeBuffer>,
        below: Below,
        from: Option<(u32, &[u8])>,
    ) -> Result<Merge<'r>, CheckpointError> {
        let cursors = layers
            .into_iter()
            .map(|reader| LayerCursor::new(reader, from).map(Source::Layer));
        let mut sources = cursors.collect::<Result<Vec<_>, _>>()?;
        sources.extend(buffer.map(|buffer| Source::Memory(buffer, 0)));
        Ok(Merge {
            rows: sources.iter().map(Source::row).collect(),
            sources,
            below,
            spent: Vec::new(),
            fold: ComposedChange::default(),
            read: 0,
        })
    }

    /// Returns the next row, which may be a deletion.
    pub(crate) fn advance(&mut self) -> Result<Option<RowChange<'_>>, CheckpointError> {
        for index in self.spent.drain(..) {
            self.read += self.sources[index].advance()?;
            self.rows[index] = self.sources[index].row();
        }
        // There are few sources: checking each is as fast as a heap.
        let mut least: Option<(Row, usize)> = None;
        for (index, row) in self.rows.iter().enumerate() {
            let Some(row) = row else {
                continue;
            };
            let found = least.map_or(Ordering::Less, |(least, at)| {
                row.order(&least, || {
                    (key(&self.sources, index), key(&self.sources, at))
                })
            });
            if found == Ordering::Less {
                self.spent.clear();
                least = Some((*row, index));
            }
            if found != Ordering::Greater {
                self.spent.push(index);
            }
        }
        // The newest source is the last.
        let Some(&newest) = self.spent.last() else {
            return Ok(None);
        };
        let Some(entry) = self.sources[newest].entry() else {
            return Ok(None);
        };
        if !entry.effect.is_patch() {
            return Ok(Some(entry));
        }
        let effect = fold(&self.sources, &self.spent, self.below, &mut self.fold)?;
        Ok(Some(RowChange { effect, ..entry }))
    }

    /// Returns the bytes read from layers since the last call.
    pub(crate) fn take_read(&mut self) -> u64 {
        std::mem::take(&mut self.read)
    }
}

/// Returns the key of the current entry of source `at`.
fn key<'s>(sources: &'s [Source<'_>], at: usize) -> &'s [u8] {
    let entry = sources[at].entry();
    entry.expect("it stands on a row").key
}

/// Composes the current entries of those sources that have the same row; the newest is a patch.
fn fold<'f>(
    sources: &[Source<'_>],
    standing: &[usize],
    below: Below,
    fold: &'f mut ComposedChange,
) -> Result<Effect<'f>, CheckpointError> {
    let effect = |at: usize| sources[at].entry().map(|entry| entry.effect);
    // Begins with the last entry that does not need the ones below it.
    let is_patch = |&at: &usize| effect(at).is_some_and(|effect| effect.is_patch());
    let base = standing.iter().rposition(|at| !is_patch(at));
    if base.is_none() && below == Below::Nothing {
        return Err(sources[standing[0]].misfit());
    }
    let (first, others) = standing[base.unwrap_or(0)..]
        .split_first()
        .expect("one of them stands on the row");
    effect(*first)
        .into_iter()
        .for_each(|effect| fold.begin(effect));
    for &at in others {
        let folded = effect(at).map_or(Ok(()), |effect| fold.add(effect));
        folded.map_err(|_| sources[at].misfit())?;
    }
    Ok(fold.effect())
}
