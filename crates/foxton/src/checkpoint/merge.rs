//! Several layers read as one: of each row, what the newest says of it.

use std::cmp::Ordering;

use super::gathered::Gathered;
use super::layer::{Cursor, Reader, order};
use super::trouble::Trouble;
use crate::redo::Change;

/// Where entries come from.
#[derive(Debug)]
enum Source<'r> {
    Layer(Cursor<'r>),
    Memory(&'r Gathered, usize),
}

impl Source<'_> {
    fn entry(&self) -> Option<Change<'_>> {
        match self {
            Source::Layer(cursor) => cursor.entry(),
            Source::Memory(gathered, at) => gathered.get(*at),
        }
    }

    fn advance(&mut self) -> Result<u64, Trouble> {
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
}

/// The rows of several layers, in order.
#[derive(Debug)]
pub(crate) struct Merge<'r> {
    /// The oldest first.
    sources: Vec<Source<'r>>,
    /// Those that stand on the row given out last.
    spent: Vec<usize>,
    /// Bytes read from layers since this was last asked.
    read: u64,
}

impl<'r> Merge<'r> {
    /// The rows from `from` on of `layers`, the oldest first, and of what was gathered since.
    pub(crate) fn new(
        layers: impl IntoIterator<Item = &'r Reader>,
        gathered: Option<&'r Gathered>,
        from: Option<(u32, &[u8])>,
    ) -> Result<Merge<'r>, Trouble> {
        let cursors = layers
            .into_iter()
            .map(|reader| Cursor::new(reader, from).map(Source::Layer));
        let mut sources = cursors.collect::<Result<Vec<_>, _>>()?;
        sources.extend(gathered.map(|gathered| Source::Memory(gathered, 0)));
        Ok(Merge {
            sources,
            spent: Vec::new(),
            read: 0,
        })
    }

    /// The next row, whether it is there or gone.
    pub(crate) fn advance(&mut self) -> Result<Option<Change<'_>>, Trouble> {
        for index in self.spent.drain(..) {
            self.read += self.sources[index].advance()?;
        }
        // A handful of sources: looking at each is as fast as a heap.
        let mut least: Option<(u32, &[u8])> = None;
        for (index, source) in self.sources.iter().enumerate() {
            let Some(entry) = source.entry() else {
                continue;
            };
            let found = least.map_or(Ordering::Less, |least| order(entry, least));
            if found == Ordering::Less {
                self.spent.clear();
                least = Some((entry.table, entry.key));
            }
            if found != Ordering::Greater {
                self.spent.push(index);
            }
        }
        // The newest is the last.
        let newest = self.spent.last();
        Ok(newest.and_then(|&index| self.sources[index].entry()))
    }

    /// Bytes read from layers since this was last asked.
    pub(crate) fn take_read(&mut self) -> u64 {
        std::mem::take(&mut self.read)
    }
}
