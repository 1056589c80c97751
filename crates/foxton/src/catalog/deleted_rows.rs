//! Deleted rows: versions of rows whose record has left its table, for readers at snapshots.
//!
//! A table of its own, ordered by key and then by where the version ends, so that scans of the
//! table do not meet rows that only a snapshot needs. The thread that removes a record first copies
//! its versions here. A reader at a snapshot searches the table first, and then here; so it misses
//! no row that moves meanwhile.
//!
//! A transaction at a snapshot that writes asks here whether a row that is absent has been there
//! since. So the newest version of a key stays as long as there is such a transaction that is older
//! than its end, though it sees no such version. If the record has lost that version by the time
//! that it is removed, an *empty* one has its place. It begins where it ends, so no reader sees it.
//!
//! A key is stored so that keys stay in order whatever comes behind them. Each zero byte is
//! followed by 255, and the end is two zero bytes. The place where the version ends follows, most
//! significant byte first. The value begins with the place where the version began.

use std::ops::Bound;

use foxton_log::Lsn;
use foxton_store::memory::{NewRecord, Next, RecordTable};
use foxton_sync::epoch::{Domain, Guard};

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct DeletedRows(RecordTable);

/// A version of a deleted row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DeletedRow {
    pub(crate) key: Vec<u8>,
    pub(crate) value: Vec<u8>,
    pub(crate) begin: Lsn,
}

const LSN_BYTES: usize = 8;

fn encode(key: &[u8], out: &mut Vec<u8>) {
    for &byte in key {
        out.push(byte);
        if byte == 0 {
            out.push(u8::MAX);
        }
    }
    out.extend([0, 0]);
}

fn decode(stored: &[u8]) -> Option<(Vec<u8>, Lsn)> {
    let (key, end) = stored.split_last_chunk::<LSN_BYTES>()?;
    let key = key.strip_suffix(&[0, 0])?;
    let mut decoded = Vec::with_capacity(key.len());
    let mut bytes = key.iter();
    while let Some(&byte) = bytes.next() {
        decoded.push(byte);
        if byte == 0 {
            bytes.next();
        }
    }
    Some((decoded, Lsn::new(u64::from_be_bytes(*end))))
}

impl DeletedRows {
    pub(crate) fn new(domain: &Domain) -> DeletedRows {
        DeletedRows(RecordTable::new(domain))
    }

    /// Inserts a version that is valid from `begin` to `end`.
    pub(crate) fn insert(
        &self,
        guard: &Guard<'_>,
        key: &[u8],
        (begin, end): (Lsn, Lsn),
        value: &[u8],
    ) {
        let mut stored = Vec::with_capacity(key.len() + 2 + LSN_BYTES);
        encode(key, &mut stored);
        stored.extend(end.bytes().to_be_bytes());
        let mut content = Vec::with_capacity(LSN_BYTES + value.len());
        content.extend(begin.bytes().to_le_bytes());
        content.extend(value);
        let record = NewRecord::of_any_length(&stored, &content);
        // A version that is here already is the same.
        let _ = self.0.insert(guard, record, Next::Any);
    }

    /// Returns the version of `key` that a reader at `snapshot` sees.
    pub(crate) fn get(&self, guard: &Guard<'_>, key: &[u8], snapshot: Lsn) -> Option<DeletedRow> {
        let mut from = Vec::with_capacity(key.len() + 2 + LSN_BYTES);
        encode(key, &mut from);
        from.extend((snapshot.bytes() + 1).to_be_bytes());
        let found = self.0.successor(guard, &from, true).record?;
        let row = Self::read(guard, found)?;
        (row.0.key == key && row.0.begin <= snapshot).then_some(row.0)
    }

    /// Returns where the newest version of `key` ends.
    pub(crate) fn newest_end(&self, guard: &Guard<'_>, key: &[u8]) -> Option<Lsn> {
        let mut stored = Vec::new();
        encode(key, &mut stored);
        stored.extend([u8::MAX; LSN_BYTES]);
        let mut cursor = self.0.backward(guard, Bound::Included(&stored[..]));
        let found = cursor.next_record()?;
        let (found, end) = decode(found.key())?;
        (found == key).then_some(end)
    }

    fn read(guard: &Guard<'_>, record: &foxton_store::memory::Record) -> Option<(DeletedRow, Lsn)> {
        let mut hazard = guard.hazard();
        let content = record.value(&mut hazard)?;
        let (begin, value) = content.split_first_chunk::<LSN_BYTES>()?;
        let (key, end) = decode(record.key())?;
        let row = DeletedRow {
            key,
            value: value.to_vec(),
            begin: Lsn::new(u64::from_le_bytes(*begin)),
        };
        Some((row, end))
    }

    /// Returns where a version begins and ends.
    fn interval(guard: &Guard<'_>, record: &foxton_store::memory::Record) -> Option<(Lsn, Lsn)> {
        let mut hazard = guard.hazard();
        let begin = record.value(&mut hazard)?.first_chunk()?;
        let end = record.key().last_chunk()?;
        let lsn = (u64::from_le_bytes(*begin), u64::from_be_bytes(*end));
        Some((Lsn::new(lsn.0), Lsn::new(lsn.1)))
    }

    /// Returns the versions of `key`, each with the place where it ends.
    pub(crate) fn versions(&self, guard: &Guard<'_>, key: &[u8]) -> Vec<(DeletedRow, Lsn)> {
        let mut start = Vec::new();
        encode(key, &mut start);
        let mut versions = Vec::new();
        let mut cursor = self.0.forward(guard, Bound::Included(&start[..]));
        while let Some(record) = cursor.next_record() {
            if !record.key().starts_with(&start) || record.key().len() != start.len() + LSN_BYTES {
                break;
            }
            versions.extend(Self::read(guard, record));
        }
        versions
    }

    /// Returns the rows from `from` to `to` that a reader sees, in order; `sees` says so of where a
    /// version begins and ends.
    pub(crate) fn range(
        &self,
        guard: &Guard<'_>,
        (from, to): (Bound<&[u8]>, Bound<&[u8]>),
        sees: impl Fn(Lsn, Lsn) -> bool,
    ) -> Vec<DeletedRow> {
        let mut start = Vec::new();
        let start = match from {
            Bound::Unbounded => Bound::Unbounded,
            Bound::Included(key) => {
                encode(key, &mut start);
                Bound::Included(&start[..])
            }
            Bound::Excluded(key) => {
                encode(key, &mut start);
                start.extend([u8::MAX; LSN_BYTES]);
                Bound::Excluded(&start[..])
            }
        };
        let mut rows = Vec::new();
        let mut cursor = self.0.forward(guard, start);
        while let Some(record) = cursor.next_record() {
            let Some((row, end)) = Self::read(guard, record) else {
                continue;
            };
            let is_behind = match to {
                Bound::Unbounded => false,
                Bound::Included(key) => row.key.as_slice() > key,
                Bound::Excluded(key) => row.key.as_slice() >= key,
            };
            if is_behind {
                break;
            }
            if sees(row.begin, end) {
                rows.push(row);
            }
        }
        rows
    }

    /// Removes the versions of `key` that are not `needed`, by where they begin and end. The newest
    /// one stays if it is `needed_as_newest`, too. Returns the number of those removed.
    pub(crate) fn prune(
        &self,
        guard: &Guard<'_>,
        key: &[u8],
        needed: &impl Fn(Lsn, Lsn) -> bool,
        needed_as_newest: &impl Fn(Lsn, Lsn) -> bool,
    ) -> u64 {
        let mut start = Vec::new();
        encode(key, &mut start);
        let mut cursor = self.0.forward(guard, Bound::Included(&start[..]));
        let mut versions = Vec::new();
        while let Some(record) = cursor.next_record() {
            if !record.key().starts_with(&start) || record.key().len() != start.len() + LSN_BYTES {
                break;
            }
            versions.extend(Self::interval(guard, record).map(|(at, end)| (record, at, end)));
        }
        let _ = versions.pop_if(|&mut (_, begin, end)| needed_as_newest(begin, end));
        let mut over = Vec::new();
        for (record, begin, end) in versions {
            if !needed(begin, end) {
                over.push(record);
            }
        }
        for &record in &over {
            if let Some(old) = record.swap(None, guard) {
                old.retire(guard.participant());
            }
            let _ = self.0.remove(guard, record, Next::Any);
        }
        over.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use foxton_sync::worker::Workers;

    use super::*;

    #[test]
    fn a_deleted_row_is_found_where_it_was_valid_and_nowhere_else() {
        let workers = Workers::new();
        let worker = workers.worker();
        let guard = worker.pin();
        let deleted = DeletedRows::new(workers.domain());
        let lsn = Lsn::new;
        let keys: [&[u8]; 6] = [b"", b"\0", b"\0\0", b"a", b"a\0", b"a\0b"];
        for (number, key) in keys.into_iter().enumerate() {
            deleted.insert(&guard, key, (lsn(10), lsn(20)), &[number as u8, 1]);
            deleted.insert(&guard, key, (lsn(30), lsn(40)), &[number as u8, 2]);
        }
        for (number, key) in keys.into_iter().enumerate() {
            for (at, version) in [(9, 0), (10, 1), (19, 1), (20, 0), (29, 0), (30, 2), (40, 0)] {
                let found = deleted.get(&guard, key, lsn(at)).map(|row| row.value);
                let expected = (version > 0).then(|| vec![number as u8, version]);
                assert_eq!(found, expected, "{key:?} at {at}");
            }
        }
        let all = (Bound::Unbounded, Bound::Unbounded);
        let at = |snapshot: u64| {
            move |begin: Lsn, end: Lsn| begin.bytes() <= snapshot && snapshot < end.bytes()
        };
        let found = deleted.range(&guard, all, at(35));
        assert_eq!(
            found.iter().map(|row| &row.key[..]).collect::<Vec<_>>(),
            keys
        );
        let some = (Bound::Excluded(keys[1]), Bound::Excluded(keys[4]));
        let found = deleted.range(&guard, some, at(15));
        assert_eq!(
            found.iter().map(|row| &row.key[..]).collect::<Vec<_>>(),
            keys[2..4]
        );

        let ends = |key: &[u8]| -> Vec<u64> {
            let versions = deleted.versions(&guard, key).into_iter();
            versions.map(|(_, end)| end.bytes()).collect()
        };
        assert!(keys.iter().all(|key| ends(key) == [20, 40]));
        let needed = |_: Lsn, end: Lsn| end == lsn(40);
        let none = |_: Lsn, _: Lsn| false;
        assert_eq!(deleted.prune(&guard, b"a", &needed, &none), 1);
        assert!(deleted.get(&guard, b"a", lsn(15)).is_none());
        assert!(deleted.get(&guard, b"a", lsn(35)).is_some());
        assert!(deleted.get(&guard, b"a\0", lsn(15)).is_some());
        assert_eq!((ends(b"a"), ends(b"b")), (vec![40], vec![]));
        // The newest of a key, and no other.
        let needed = |_: Lsn, end: Lsn| end <= lsn(40);
        assert_eq!(deleted.prune(&guard, b"a\0", &none, &needed), 1);
        assert_eq!(ends(b"a\0"), [40]);
        // An empty one is newest, and nobody sees it.
        deleted.insert(&guard, b"a\0", (lsn(50), lsn(50)), b"");
        assert_eq!(deleted.newest_end(&guard, b"a\0"), Some(lsn(50)));
        assert!((40..60).all(|at| deleted.get(&guard, b"a\0", lsn(at)).is_none()));
        assert_eq!(deleted.prune(&guard, b"a\0", &none, &none), 2);
    }
}
