//! Several layers read as one: of each row, what the newest says of it; and if that is a patch, what
//! comes of it and of what those below say.
//!
//! # Invariants
//!
//! * I1  What is given out of a row does to what lies below all sources the same as they do one after the
//!   other. With nothing below, no patch is given out: it would be one of a row that is not there.

use std::cmp::Ordering;

use super::change_buffer::ChangeBuffer;
use super::compose::Fold;
use super::error::CheckpointError;
use super::layer::{LayerCursor, LayerReader};
use super::sort_key::Row;
use crate::redo::record::{Change, Effect};

/// Where entries come from.
#[derive(Debug)]
enum Source<'r> {
    Layer(LayerCursor<'r>),
    Memory(&'r ChangeBuffer, usize),
}

impl Source<'_> {
    fn entry(&self) -> Option<Change<'_>> {
        match self {
            Source::Layer(cursor) => cursor.entry(),
            Source::Memory(gathered, at) => gathered.get(*at),
        }
    }

    /// The row of its entry.
    fn row(&self) -> Option<Row> {
        match self {
            Source::Layer(cursor) => cursor.entry().map(|entry| Row::new(entry.table, entry.key)),
            Source::Memory(gathered, at) => gathered.row(*at),
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

    /// That the patch it stands on does not fit what is below.
    fn misfit(&self) -> CheckpointError {
        match self {
            Source::Layer(cursor) => {
                cursor.damaged("a patch does not fit what older layers say of its row")
            }
            Source::Memory(gathered, at) => {
                let what = "a patch that fits what the checkpoint says of its row";
                CheckpointError::InvalidRecord(
                    gathered.lsn(*at),
                    crate::redo::replay::InvalidRecord(what),
                )
            }
        }
    }
}

/// What lies below the sources of a merge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Below {
    /// Older layers.
    Layers,
    /// Nothing: the oldest layer is among the sources.
    Nothing,
}

/// The rows of several layers, in order.
#[derive(Debug)]
pub(crate) struct Merge<'r> {
    /// The oldest first.
    sources: Vec<Source<'r>>,
    /// The row that each stands on.
    rows: Vec<Option<Row>>,
    below: Below,
    /// Those that stand on the row given out last, the oldest first.
    spent: Vec<usize>,
    fold: Fold,
    /// Bytes read from layers since this was last asked.
    read: u64,
}

impl<'r> Merge<'r> {
    /// The rows from `from` on of `layers`, the oldest first, and of what was gathered since.
    pub(crate) fn new(
        layers: impl IntoIterator<Item = &'r LayerReader>,
        gathered: Option<&'r ChangeBuffer>,
        below: Below,
        from: Option<(u32, &[u8])>,
    ) -> Result<Merge<'r>, CheckpointError> {
        let cursors = layers
            .into_iter()
            .map(|reader| LayerCursor::new(reader, from).map(Source::Layer));
        let mut sources = cursors.collect::<Result<Vec<_>, _>>()?;
        sources.extend(gathered.map(|gathered| Source::Memory(gathered, 0)));
        Ok(Merge {
            rows: sources.iter().map(Source::row).collect(),
            sources,
            below,
            spent: Vec::new(),
            fold: Fold::default(),
            read: 0,
        })
    }

    /// The next row, whether it is there or gone.
    pub(crate) fn advance(&mut self) -> Result<Option<Change<'_>>, CheckpointError> {
        for index in self.spent.drain(..) {
            self.read += self.sources[index].advance()?;
            self.rows[index] = self.sources[index].row();
        }
        // A handful of sources: looking at each is as fast as a heap.
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
        // The newest is the last.
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
        Ok(Some(Change { effect, ..entry }))
    }

    /// Bytes read from layers since this was last asked.
    pub(crate) fn take_read(&mut self) -> u64 {
        std::mem::take(&mut self.read)
    }
}

/// The key of the row that the source `at` stands on.
fn key<'s>(sources: &'s [Source<'_>], at: usize) -> &'s [u8] {
    let entry = sources[at].entry();
    entry.expect("it stands on a row").key
}

/// What those of the sources that stand on one row come to, of which the newest says a patch.
fn fold<'f>(
    sources: &[Source<'_>],
    standing: &[usize],
    below: Below,
    fold: &'f mut Fold,
) -> Result<Effect<'f>, CheckpointError> {
    let effect = |at: usize| sources[at].entry().map(|entry| entry.effect);
    // From the last one that does not need what is below it.
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
