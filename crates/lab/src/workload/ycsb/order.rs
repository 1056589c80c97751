//! The keys of the loaded records, in order: a scan must find them. Records are never deleted, so
//! records inserted since can only be additional.

use super::record;

/// The keys, in their order.
#[derive(Debug)]
pub struct Order(Vec<String>);

impl Order {
    /// The keys of this many records.
    pub fn of(records: u64) -> Order {
        let mut keys: Vec<String> = (0..records).map(record::key).collect();
        keys.sort_unstable();
        Order(keys)
    }

    /// The keys from this one on.
    pub fn from(&self, key: &str) -> &[String] {
        &self.0[self.0.partition_point(|other| other.as_str() < key)..]
    }
}

/// A scan in progress: each record is compared with its contents and with the next expected key.
#[derive(Debug)]
pub struct Scan<'a> {
    /// Loaded keys that were not found yet.
    awaited: &'a [String],
    last: Option<String>,
    wrong: Option<String>,
}

impl<'a> Scan<'a> {
    /// From `key` on, in a table that was loaded so.
    pub fn begin(order: &'a Order, key: &str) -> Scan<'a> {
        Scan {
            awaited: order.from(key),
            last: None,
            wrong: None,
        }
    }

    /// Checks a record.
    pub fn meet(&mut self, key: &[u8], bytes: &[u8]) {
        if self.wrong.is_none() {
            self.wrong = self.look(key, bytes).err();
        }
    }

    fn look(&mut self, key: &[u8], bytes: &[u8]) -> Result<(), String> {
        let name = str::from_utf8(key).ok();
        let Some(name) = name.filter(|name| record::hash_of(name).is_some()) else {
            return Err(format!("a key is {:?}", String::from_utf8_lossy(key)));
        };
        if let Some(last) = self.last.as_deref().filter(|last| *last >= name) {
            return Err(format!("record {name} follows record {last}"));
        }
        match self.awaited.first() {
            Some(next) if next.as_str() < name => return Err(format!("record {next} is gone")),
            Some(next) if next == name => self.awaited = &self.awaited[1..],
            _ => {}
        }
        if let Some(what) = record::wrong(bytes) {
            return Err(format!("record {name}: {what}"));
        }
        self.last = Some(name.to_owned());
        Ok(())
    }

    /// Ends the scan, at the end of the table or at its limit, and returns the error, if any.
    pub fn end(self, at_end_of_table: bool) -> Result<(), String> {
        match (self.wrong, self.awaited.first()) {
            (Some(what), _) => Err(what),
            (None, Some(next)) if at_end_of_table => Err(format!("record {next} is gone")),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meet(order: &Order, from: &str, met: &[(&str, &[u8])], at_end: bool) -> Result<(), String> {
        let mut scan = Scan::begin(order, from);
        met.iter()
            .for_each(|(key, bytes)| scan.meet(key.as_bytes(), bytes));
        scan.end(at_end)
    }

    #[test]
    fn every_record_of_a_scan_is_compared_and_not_the_first_alone() {
        let order = Order::of(20);
        let keys = order.from("");
        assert_eq!((keys.len(), order.from(&keys[3]).len()), (20, 17));
        let whole = record::initial(1, 7);
        let from = |first: usize, last: usize| -> Vec<(&str, &[u8])> {
            keys[first..last]
                .iter()
                .map(|key| (key.as_str(), &whole[..]))
                .collect()
        };
        assert_eq!(meet(&order, &keys[3], &from(3, 9), false), Ok(()));
        assert_eq!(meet(&order, &keys[3], &from(3, 20), true), Ok(()));
        let early = meet(&order, &keys[3], &from(3, 19), true);
        assert_eq!(early, Err(format!("record {} is gone", keys[19])));
        let mut hole = from(3, 9);
        hole.remove(4);
        let hole = meet(&order, &keys[3], &hole, false);
        assert_eq!(hole, Err(format!("record {} is gone", keys[7])));
        let mut swapped = from(3, 9);
        swapped[5] = swapped[4];
        let swapped = meet(&order, &keys[3], &swapped, false).unwrap_err();
        assert!(swapped.contains("follows"), "{swapped}");
        let mut short = from(3, 9);
        short[5].1 = &whole[..900];
        let short = meet(&order, &keys[3], &short, false).unwrap_err();
        assert!(
            short.contains(&keys[8]) && short.contains("field 8"),
            "{short}"
        );
        let mut odd = from(3, 9);
        odd.push(("zebra", &whole));
        assert!(meet(&order, &keys[3], &odd, false).is_err());
        // Records that were inserted since may be among them.
        let all = Order::of(40);
        let more: Vec<_> = all
            .from(&keys[3])
            .iter()
            .map(|key| (key.as_str(), &whole[..]))
            .collect();
        assert!(more.len() > 17);
        assert_eq!(meet(&order, &keys[3], &more, true), Ok(()));
    }
}
