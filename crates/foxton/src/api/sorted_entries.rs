//! Entries of an index that is built, sorted by key in bounded memory.

/// Entries of an index, as many as fit a bound.
#[derive(Debug)]
pub(super) struct SortedEntries {
    /// Keys and values, one behind the other.
    bytes: Vec<u8>,
    places: Vec<SortedPlace>,
    most_bytes: usize,
}

#[derive(Debug, Clone, Copy)]
struct SortedPlace {
    /// The first bytes of the key, which decide most comparisons.
    head: u64,
    start: u32,
    key_bytes: u32,
    value_bytes: u32,
}

impl SortedEntries {
    /// `most_bytes` is the memory that they take; less than 4 GiB.
    pub(super) fn new(most_bytes: usize) -> SortedEntries {
        SortedEntries {
            bytes: Vec::new(),
            places: Vec::new(),
            most_bytes: most_bytes.min(u32::MAX as usize / 2),
        }
    }

    /// Adds an entry.
    pub(super) fn push(&mut self, key: &[u8], value: &[u8]) {
        let length = |bytes: usize| u32::try_from(bytes).expect("they are bounded");
        let mut head = [0; 8];
        let known = key.len().min(8);
        head[..known].copy_from_slice(&key[..known]);
        self.places.push(SortedPlace {
            head: u64::from_be_bytes(head),
            start: length(self.bytes.len()),
            key_bytes: length(key.len()),
            value_bytes: length(value.len()),
        });
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
    }

    /// True if they take the memory that they may take.
    pub(super) fn is_full(&self) -> bool {
        self.bytes.len() + self.places.len() * size_of::<SortedPlace>() >= self.most_bytes
    }

    /// Sorts the entries by key, and those of one key by value.
    pub(super) fn sort(&mut self) {
        let SortedEntries { bytes, places, .. } = self;
        places.sort_unstable_by(|one, other| {
            let heads = one.head.cmp(&other.head);
            heads.then_with(|| one.content(bytes).cmp(&other.content(bytes)))
        });
    }

    /// Number of entries.
    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    /// Returns key and value of an entry.
    pub(super) fn entry(&self, index: usize) -> (&[u8], &[u8]) {
        self.places[index].content(&self.bytes)
    }

    /// Removes all entries.
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.places.clear();
    }
}

impl SortedPlace {
    fn content(self, bytes: &[u8]) -> (&[u8], &[u8]) {
        let (start, key) = (self.start as usize, self.key_bytes as usize);
        let end = start + key + self.value_bytes as usize;
        bytes[start..end].split_at(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_in_the_order_of_their_keys() {
        let keys: [&[u8]; 7] = [
            b"",
            b"\0",
            b"\0\0\0\0\0\0\0\0\0",
            b"a",
            b"a prefix, and a",
            b"a prefix, and b",
            b"b",
        ];
        let mut entries = SortedEntries::new(500);
        let mut count = 0;
        while !entries.is_full() {
            // Seven is prime to the step, so all come up, in another order.
            entries.push(keys[count * 3 % 7], &[count as u8]);
            count += 1;
        }
        assert!((7..500).contains(&count));
        entries.sort();
        let sorted: Vec<_> = (0..entries.len()).map(|at| entries.entry(at)).collect();
        assert!(sorted.is_sorted());
        assert_eq!(sorted.len(), count);
        let mut found: Vec<_> = sorted.iter().map(|(key, _)| *key).collect();
        found.dedup();
        assert_eq!(found, keys);
        entries.clear();
        assert!(entries.len() == 0 && !entries.is_full());
    }
}
