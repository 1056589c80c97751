//! Cursors: the records of a table in order.
//!
//! A cursor reads a few entries of a leaf at one version, asks the processor to fetch their
//! records, and returns them one by one with a token each. Fetching early makes a scan fast: in a
//! table larger than the caches every record is a miss, and several misses at once take hardly
//! longer than one. A value that was updated is elsewhere and is a miss of its own, behind that of
//! its record. So it is fetched when its record may have arrived, two steps later.
//!
//! If the leaf changed in the meantime, the cursor descends again from the record it returned last.
//! So each token tells what is between two returned records, whatever happened between.

use super::index::descend::{self, Target};
use super::index::walk::{self, Direction, Token, WalkPosition};
use super::node::{IndexNode, Pinned};
use super::record::{Record, RecordPointer};
use super::search_key::SearchKey;
use foxton_sync::backoff::Backoff;
use foxton_sync::latch::Version;
use std::fmt;
use std::ops::Bound;

/// Number of entries read from a leaf at a time.
const BATCH: usize = 16;

/// Number of records fetched ahead of the returned one.
const RECORDS_AHEAD: usize = 4;
/// Distance ahead of the record whose value is fetched, if it is elsewhere: shorter, because the
/// record says where.
const VALUE_AHEAD: usize = 2;

/// A position between two records, moving one way.
///
/// ```
/// use foxton_store::memory::{NewRecord, Next, RecordTable};
/// use foxton_sync::worker::Workers;
/// use std::ops::Bound;
///
/// let workers = Workers::new();
/// let table = RecordTable::new(workers.domain());
/// let worker = workers.worker();
/// let guard = worker.pin();
/// for key in [b"a", b"b", b"c"] {
///     table.insert(&guard, NewRecord::new(key, Some(b""))?, Next::Any).expect("new");
/// }
/// let mut cursor = table.backward(&guard, Bound::Excluded(b"c"));
/// let entry = cursor.advance();
/// assert_eq!(entry.record.expect("b").key(), b"b");
/// assert!(table.unchanged(&entry.token));
/// assert_eq!(cursor.advance().record.expect("a").key(), b"a");
/// assert!(cursor.advance().record.is_none());
/// # Ok::<(), foxton_store::TooLong>(())
/// ```
pub struct RecordCursor<'g, 'k, const N: usize> {
    tree: Pinned<'g, N>,
    direction: Direction,
    start: Bound<&'k [u8]>,
    last: Option<&'g Record>,
    before_last: Option<&'g Record>,
    leaf: Option<LeafPosition<'g, N>>,
    token: Option<Token<'g>>,
    batch: [Option<RecordPointer<'g>>; BATCH],
    used: usize,
    filled: usize,
    /// True if the value of one of the records that began a batch was elsewhere. If not, the values
    /// of others are not fetched.
    values_elsewhere: bool,
    /// True if the last step found no record.
    ended: bool,
    /// The end, and whether a record there belongs to the range.
    end: Option<(SearchKey<'k>, bool)>,
    /// True if everything behind the batch is past the end.
    is_last: bool,
}

/// A leaf at a version, and its next entries.
#[derive(Clone, Copy)]
struct LeafPosition<'g, const N: usize> {
    node: &'g IndexNode<N>,
    version: Version,
    /// Forward: the first slot not read yet. Backward: past the last one.
    slot: usize,
}

impl<const N: usize> fmt::Debug for RecordCursor<'_, '_, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecordCursor")
            .field("direction", &self.direction)
            .field("last", &self.last)
            .finish_non_exhaustive()
    }
}

impl<'g, 'k, const N: usize> RecordCursor<'g, 'k, N> {
    #[inline]
    pub(super) fn new(tree: Pinned<'g, N>, direction: Direction, start: Bound<&'k [u8]>) -> Self {
        Self {
            tree,
            direction,
            start,
            last: None,
            before_last: None,
            leaf: None,
            token: None,
            batch: [None; BATCH],
            used: 0,
            filled: 0,
            values_elsewhere: false,
            ended: false,
            end: None,
            is_last: false,
        }
    }

    /// Stops at `end`, in the direction of the cursor, without reading the record past it. For
    /// [`RecordCursor::next_record`] alone: nothing proves what is past the last record.
    #[inline]
    #[must_use]
    pub fn until(mut self, end: Bound<&'k [u8]>) -> Self {
        self.end = match end {
            Bound::Included(key) => Some((SearchKey::new(key), true)),
            Bound::Excluded(key) => Some((SearchKey::new(key), false)),
            Bound::Unbounded => None,
        };
        self
    }

    /// Returns the next record, without proof: for a caller that knows that no record between the
    /// ends of the cursor is inserted or removed meanwhile. Takes less than half the work. At the
    /// end returns `None`, for good.
    #[inline]
    pub fn next_record(&mut self) -> Option<&'g Record> {
        if self.used == self.filled && (self.is_last || !self.refill()) {
            self.is_last = true;
            return None;
        }
        self.fetch_ahead();
        let record = self.batch[self.used].expect("filled").record();
        self.used += 1;
        self.last = Some(record);
        Some(record)
    }

    /// Returns the next record, and the proof that nothing is between it and the record before (or
    /// the start of the cursor). At the end there is no record, but a token all the same; called
    /// again, the cursor looks again.
    #[inline]
    pub fn advance(&mut self) -> WalkPosition<'g> {
        if self.used == self.filled && !self.refill() {
            return self.at_end();
        }
        self.fetch_ahead();
        let record = self.batch[self.used].expect("filled").record();
        self.used += 1;
        let token = match self.token.take() {
            Some(token) => token,
            None => {
                let at = self.leaf.as_ref().expect("a batch comes from a leaf");
                Token::at(at.node, at.version)
            }
        };
        self.ended = false;
        (self.before_last, self.last) = (self.last, Some(record));
        WalkPosition {
            record: Some(record),
            token,
        }
    }

    /// Fetches the record that is returned a few steps later. Past the filled entries are old ones,
    /// which do no harm. A record found in a leaf is there as long as the guard, even if it was
    /// never returned ("Why every pointer found may be followed" in `node.rs`).
    #[inline(always)]
    fn fetch_ahead(&self) {
        if let Some(Some(ahead)) = self.batch.get(self.used + RECORDS_AHEAD) {
            ahead.prefetch();
        }
        if self.values_elsewhere
            && let Some(Some(near)) = self.batch.get(self.used + VALUE_AHEAD)
        {
            near.prefetch_value();
        }
    }

    /// Takes the last step back: the record returned last does not count, and the next call of
    /// [`RecordCursor::advance`] looks anew after the one before it. For a token that was not
    /// unchanged. One step can be taken back, not two.
    pub fn step_back(&mut self) {
        if !self.ended {
            self.last = self.before_last;
        }
        self.ended = false;
        self.leaf = None;
        (self.used, self.filled) = (0, 0);
    }

    #[inline(never)]
    fn at_end(&mut self) -> WalkPosition<'g> {
        self.leaf = None;
        self.ended = true;
        let token = self
            .token
            .take()
            .expect("a walk to the end looks at leaves");
        WalkPosition {
            record: None,
            token,
        }
    }

    /// Reads the next entries; returns false if there are none.
    #[inline(never)]
    fn refill(&mut self) -> bool {
        let mut backoff = Backoff::new();
        loop {
            match self.try_refill() {
                Some(found) => return found,
                // Another thread changed the leaf: begin again after the last returned record.
                None => {
                    self.leaf = None;
                    backoff.snooze();
                }
            }
        }
    }

    /// `None` if another thread interfered.
    fn try_refill(&mut self) -> Option<bool> {
        let mut at = match self.leaf {
            Some(at) => at,
            None => self.seek(),
        };
        let mut token = Token::at(at.node, at.version);
        loop {
            if self.read(&mut at) {
                self.leaf = Some(at);
                self.token = Some(token);
                return at.node.latch().unchanged_since(at.version).then_some(true);
            }
            if self.is_last {
                self.token = Some(token);
                let unchanged = at.node.latch().unchanged_since(at.version);
                return unchanged.then_some(false);
            }
            match walk::neighbour(at.node, at.version, self.direction)? {
                Some((node, version)) => {
                    token.push(node, version);
                    let slot = self.first_slot(node);
                    at = LeafPosition {
                        node,
                        version,
                        slot,
                    };
                }
                None => {
                    self.token = Some(token);
                    return Some(false);
                }
            }
        }
    }

    fn first_slot(&self, node: &IndexNode<N>) -> usize {
        match self.direction {
            Direction::Forward => 0,
            Direction::Backward => node.count(),
        }
    }

    /// Returns the leaf and slot to continue from.
    fn seek(&self) -> LeafPosition<'g, N> {
        let from = match self.last {
            Some(record) => Bound::Excluded(record.key()),
            None => self.start,
        };
        let (key, excluded) = match from {
            Bound::Included(key) => (key, false),
            Bound::Excluded(key) => (key, true),
            Bound::Unbounded => {
                let target = match self.direction {
                    Direction::Forward => Target::First,
                    Direction::Backward => Target::Last,
                };
                let (node, version) = descend::find_leaf(self.tree, target);
                return LeafPosition {
                    node,
                    version,
                    slot: self.first_slot(node),
                };
            }
        };
        let search_key = SearchKey::new(key);
        let (node, version) = descend::find_leaf(self.tree, Target::Key(search_key));
        let position = node.position(&search_key);
        let past = match self.direction {
            Direction::Forward => excluded,
            Direction::Backward => !excluded,
        };
        LeafPosition {
            node,
            version,
            slot: position.index + usize::from(position.found && past),
        }
    }

    /// Returns the slots of a leaf that are before the end, and whether the end is in this leaf.
    #[inline]
    fn slots_until_end(&self, leaf: &IndexNode<N>, count: usize) -> (usize, usize, bool) {
        let Some((search_key, included)) = self.end else {
            return (0, count, false);
        };
        let position = leaf.position(&search_key);
        let takes_found = usize::from(position.found && included);
        match self.direction {
            Direction::Forward => (0, position.index + takes_found, position.index < count),
            Direction::Backward => {
                let low = position.index + usize::from(position.found) - takes_found;
                (low, count, low > 0 || position.found)
            }
        }
    }

    /// Fills the batch from one leaf. Returns whether there was any entry.
    fn read(&mut self, at: &mut LeafPosition<'g, N>) -> bool {
        let count = at.node.count();
        let (low, high, ends) = self.slots_until_end(at.node, count);
        let slots = match self.direction {
            Direction::Forward => at.slot.min(high)..high.min(at.slot + BATCH),
            Direction::Backward => at.slot.saturating_sub(BATCH).max(low).min(at.slot)..at.slot,
        };
        self.is_last = match self.direction {
            Direction::Forward => ends && slots.end >= high,
            Direction::Backward => ends && slots.start <= low,
        };
        (self.used, self.filled) = (0, slots.len());
        at.slot = match self.direction {
            Direction::Forward => slots.end,
            Direction::Backward => slots.start,
        };
        // A slot without a record is one that changes: the version will tell.
        let pointers = slots.map(|slot| at.node.pointer(slot));
        let batch = &mut self.batch[..self.filled];
        batch
            .iter_mut()
            .zip(pointers)
            .for_each(|(entry, pointer)| *entry = pointer);
        if self.direction == Direction::Backward {
            batch.reverse();
        }
        let first = batch.iter().take(RECORDS_AHEAD).flatten();
        first.for_each(|pointer| pointer.prefetch());
        // Touched before the version is checked, as keys are in a search: see `fetch_ahead`.
        let nearest = batch.iter().take(VALUE_AHEAD).flatten();
        nearest.for_each(|pointer| self.values_elsewhere |= pointer.prefetch_value());
        let neighbour = match self.direction {
            Direction::Forward if at.slot >= count => at.node.next(),
            Direction::Backward if at.slot == 0 => at.node.prev(),
            _ => None,
        };
        if let Some(neighbour) = neighbour {
            neighbour.prefetch();
        }
        self.filled > 0
    }
}
