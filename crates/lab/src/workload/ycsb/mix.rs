//! The mixes: frequencies of the operations, and the choice of records.

use super::{
    operation::{Change, Operation},
    record::FIELDS,
    sequence::Sequence,
};
use crate::random::{
    Random,
    zipfian::{Latest, Scrambled},
};

/// Records of the longest scan.
const LONGEST_SCAN: u64 = 100;

/// Percentages of the operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mix {
    /// Read 50, update 50.
    A,
    /// Read 95, update 5.
    B,
    /// Read 100.
    C,
    /// Read 95, insert 5; the latest records are the most frequent.
    D,
    /// Scan 95, insert 5.
    E,
    /// Read 50, read-modify-write 50.
    F,
}

foxton_sync::named_enum! {
    Mix, "mix":
    A = "a",
    B = "b",
    C = "c",
    D = "d",
    E = "e",
    F = "f",
}

impl Mix {
    /// The operation beside the most frequent one, and its percentage.
    fn beside(self) -> u32 {
        match self {
            Mix::A | Mix::F => 50,
            Mix::B | Mix::D | Mix::E => 5,
            Mix::C => 0,
        }
    }

    /// True if records are added.
    pub fn inserts(self) -> bool {
        matches!(self, Mix::D | Mix::E)
    }

    /// True if records are changed.
    pub fn updates(self) -> bool {
        matches!(self, Mix::A | Mix::B | Mix::F)
    }

    /// A description in a sentence or two.
    pub(super) fn description(self) -> &'static str {
        match self {
            Mix::A => {
                "Half of the operations read a record, half update a field; keys are zipfian."
            }
            Mix::B => "95 % of the operations read a record, 5 % update a field; keys are zipfian.",
            Mix::C => "Every operation reads a record; keys are zipfian.",
            Mix::D => {
                "95 % of the operations read a record, the latest the most often; 5 % insert one."
            }
            Mix::E => {
                "95 % of the operations scan 1 to 100 records from a zipfian key on; 5 % insert one."
            }
            Mix::F => {
                "Half of the operations read a record, half read it and write a field back; keys are \
                 zipfian."
            }
        }
    }
}

/// Draws operations of a mix.
#[derive(Debug, Clone, Copy)]
pub struct Chooser {
    mix: Mix,
    records: u64,
    scrambled: Scrambled,
    latest: Latest,
}

impl Chooser {
    /// For a table loaded with this many records.
    pub fn new(mix: Mix, records: u64) -> Chooser {
        Chooser {
            mix,
            records,
            scrambled: Scrambled::default(),
            latest: Latest::default(),
        }
    }

    /// Draws an operation. A number for a record to be inserted is taken from `sequence`.
    pub fn draw(&self, random: &mut Random, sequence: &Sequence) -> Operation {
        let beside = random.percent(self.mix.beside());
        match (self.mix, beside) {
            (Mix::D | Mix::E, true) => Operation::Insert(sequence.take()),
            (Mix::D, false) => Operation::Read(self.latest.draw(random, sequence.known())),
            (Mix::E, false) => {
                Operation::Scan(self.zipfian(random), random.uniform(1, LONGEST_SCAN))
            }
            (Mix::F, true) => {
                Operation::ReadModifyWrite(self.zipfian(random), Change::draw(random))
            }
            (_, true) => Operation::Update(self.zipfian(random), Change::draw(random)),
            (_, false) => Operation::Read(self.zipfian(random)),
        }
    }

    fn zipfian(&self, random: &mut Random) -> u64 {
        self.scrambled.draw(random, self.records)
    }
}

impl Change {
    fn draw(random: &mut Random) -> Change {
        Change {
            field: random.uniform(0, FIELDS as u64 - 1) as usize,
            seed: random.bits(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::ycsb::operation::KINDS;

    #[test]
    fn every_mix_has_its_shares() {
        // Read, update, insert, scan, read-modify-write.
        let shares = [
            (Mix::A, [50, 50, 0, 0, 0]),
            (Mix::B, [95, 5, 0, 0, 0]),
            (Mix::C, [100, 0, 0, 0, 0]),
            (Mix::D, [95, 0, 5, 0, 0]),
            (Mix::E, [0, 0, 5, 95, 0]),
            (Mix::F, [50, 0, 0, 0, 50]),
        ];
        for (mix, expected) in shares {
            let (chooser, sequence) = (Chooser::new(mix, 1_000), Sequence::new(1_000));
            let mut random = Random::seeded(&[1]);
            let mut counts = [0u32; KINDS.len()];
            for _ in 0..20_000 {
                let operation = chooser.draw(&mut random, &sequence);
                counts[operation.kind()] += 1;
                if let Operation::Scan(_, count) = operation {
                    assert!((1..=LONGEST_SCAN).contains(&count));
                }
            }
            for (count, percent) in counts.into_iter().zip(expected) {
                let off = count.abs_diff(percent * 200);
                let allowed = if percent % 100 == 0 { 0 } else { 300 };
                assert!(off <= allowed, "{mix}: {counts:?}");
            }
            assert_eq!(mix.inserts(), counts[2] > 0);
            assert_eq!(mix.updates(), counts[1] + counts[4] > 0);
        }
    }

    #[test]
    fn what_is_read_while_records_are_added_is_there() {
        let (chooser, sequence) = (Chooser::new(Mix::D, 10), Sequence::new(10));
        let mut random = Random::seeded(&[2]);
        let mut latest = 0;
        for _ in 0..20_000 {
            match chooser.draw(&mut random, &sequence) {
                Operation::Insert(number) if number % 3 == 0 => sequence.committed(number),
                Operation::Read(number) => {
                    assert!(number < sequence.known());
                    latest += u32::from(number + 1 == sequence.known());
                }
                _ => {}
            }
        }
        // The first insert never ends, so ten records are known: the latest has 1 / zeta(10) of the
        // reads, about a third.
        assert_eq!(sequence.known(), 10);
        assert!((5_500..7_500).contains(&latest), "{latest}");
    }
}
